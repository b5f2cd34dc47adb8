package serve

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/xds"
)

const agentURL = "navarch.io/test"

// board is an agent resource that a test changes.
type board struct {
	res   atomic.Pointer[AgentResource]
	asked atomic.Int32
}

func (b *board) agentType() AgentType {
	return AgentType{TypeURL: agentURL, Resource: func(Client, View) *AgentResource { b.asked.Add(1); return b.res.Load() }}
}

func agentResource(t testing.TB, name, content string) *AgentResource {
	t.Helper()
	r, err := EncodeAgentResource(name, structpb.NewStringValue(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An agent resource is pushed to who subscribed, beside what Envoy asked for; who did not is not disturbed; and every response says
// of which revision it is.
func TestAgentResourceIsPushed(t *testing.T) {
	b := &board{}
	b.res.Store(agentResource(t, "A", "1"))
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p, AgentTypes: []AgentType{b.agentType()}, Store: func() string { return "c1" }})
	agent, envoy := dial(t, addr), dial(t, addr)
	for _, c := range []*client{agent, envoy} {
		c.ask(xds.Cluster)
		r := c.next()
		if r.SystemVersionInfo != "2" {
			t.Errorf("revision %q", r.SystemVersionInfo)
		}
		c.ack(r)
	}
	if md, err := agent.Header(); err != nil || !slices.Equal(md.Get("navarch-store"), []string{"c1"}) {
		t.Errorf("header %v %v", md, err)
	}
	if n := b.asked.Load(); n != 0 {
		t.Errorf("asked %d times for a resource that nobody wants", n)
	}
	agent.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL, ResourceNamesSubscribe: []string{"A"}})
	r := agent.next()
	var body structpb.Value
	if r.TypeUrl != agentURL || len(r.Resources) != 1 || r.Resources[0].Name != "A" || r.Resources[0].Resource.UnmarshalTo(&body) != nil || body.GetStringValue() != "1" {
		t.Fatalf("%v", r)
	}
	if r.SystemVersionInfo != "2" {
		t.Errorf("revision %q", r.SystemVersionInfo)
	}
	// Not acknowledged yet: the newest waits for that, and what is in between is never sent.
	for i := range 5 {
		b.res.Store(agentResource(t, "A", fmt.Sprint(i+2)))
		s.AgentResourceChanged(agentURL)
	}
	s.AgentResourceChanged("navarch.io/not-served")
	p.put(cluster("b"))
	if other := agent.next(); other.TypeUrl != xds.Cluster.URL() {
		t.Fatalf("overtook: %v", other)
	} else {
		agent.ack(other)
	}
	envoy.ack(envoy.next())
	agent.ack(r)
	r = agent.next()
	if err := r.Resources[0].Resource.UnmarshalTo(&body); err != nil || body.GetStringValue() != "6" {
		t.Fatalf("%v %v", r, err)
	}
	refusedThenGone(t, s, b, agent, r)
	p.put(cluster("c"))
	envoy.ask(xds.Cluster)
	if r := envoy.next(); r.TypeUrl != xds.Cluster.URL() {
		t.Errorf("who did not subscribe got %v", r)
	}
}

// refusedThenGone refuses what the agent was sent, which is known then and not sent again; the resource goes, and that is sent.
func refusedThenGone(t *testing.T, s *Server, b *board, agent *client, r *discoveryv3.DeltaDiscoveryResponse) {
	t.Helper()
	agent.nack(r, "no")
	eventually(t, "the refusal is known", func() bool {
		return slices.ContainsFunc(s.Inspect(), func(i StreamInfo) bool {
			return len(i.AgentSubscriptions) == 1 && i.AgentSubscriptions[0].Refused == r.Resources[0].Version
		})
	})
	s.AgentResourceChanged(agentURL)
	b.res.Store(nil)
	s.AgentResourceChanged(agentURL)
	if r = agent.next(); !slices.Equal(r.RemovedResources, []string{"A"}) {
		t.Fatalf("%v", r)
	}
	agent.ack(r)
	eventually(t, "nothing is in flight", func() bool {
		return !slices.ContainsFunc(s.Inspect(), func(i StreamInfo) bool {
			return i.Unacked != 0 || slices.ContainsFunc(i.AgentSubscriptions, func(a AgentSubscriptionInfo) bool { return a.InFlight })
		})
	})
}

// A stream that owes acknowledgements is not sent agent resources before they come, so that a sender never blocks; nor does one
// that holds back the acknowledgement of an agent resource get anything beyond the credit. It is closed at the deadline.
func TestAgentResourceKeepsTheCredit(t *testing.T) {
	b := &board{}
	b.res.Store(agentResource(t, "A", strings.Repeat("x", 1<<20)))
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p, Workers: 1, AckDeadline: 3 * time.Second, AgentTypes: []AgentType{b.agentType()}})
	slow, fast := dial(t, addr), dial(t, addr)
	for _, c := range []*client{slow, fast} {
		c.ask(xds.Cluster)
		c.ack(c.next())
	}
	slow.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL}) // and reads nothing: 1 MB does not fit into the window
	eventually(t, "it is in flight", func() bool {
		return slices.ContainsFunc(s.Inspect(), func(i StreamInfo) bool { return i.Unacked > 1<<20 })
	})
	for i := range 20 { // would block the only worker at the first
		p.put(large("a", 1<<16, fmt.Sprint(i)))
		b.res.Store(agentResource(t, "A", fmt.Sprint(i)))
		s.AgentResourceChanged(agentURL)
		r := fast.next()
		fast.ack(r)
	}
	if got := slow.end(); got.Code() != codes.Unavailable && got.Code() != codes.DeadlineExceeded {
		t.Errorf("%v", got)
	}
	fast.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL})
	fast.ack(fast.next())
}

// A removal that is not acknowledged closes nothing: stock agents do not acknowledge it.
func TestAgentResourceRemovalNeedsNoAck(t *testing.T) {
	b := &board{}
	deadline := make(chan bool, 10)
	_, addr := start(t, Config{Planner: newPlanner(cluster("a")), AckDeadline: 2 * time.Second, AgentTypes: []AgentType{b.agentType()},
		Hooks: Hooks{Timeout: func(write bool) { deadline <- write }}})
	silent, rude := dial(t, addr), dial(t, addr)
	for _, c := range []*client{silent, rude} {
		c.ask(xds.Cluster)
		c.ack(c.next())
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL, ResourceNamesSubscribe: []string{"A"}})
		if r := c.next(); !slices.Equal(r.RemovedResources, []string{"A"}) {
			t.Fatalf("%v", r)
		}
	}
	rude.ask(xds.Listener)
	rude.next() // not acknowledged: a barrier, for its deadline ends after that of the removals
	rude.end()
	<-deadline // told after the stream has ended
	silent.ask(xds.Listener)
	silent.ack(silent.next())
	if n := len(deadline); n != 0 {
		t.Errorf("%d more streams were closed", n)
	}
}

// Nor is an agent resource sent over what Envoy has not acknowledged: the sender would block.
func TestAgentResourceWaitsForCredit(t *testing.T) {
	b := &board{}
	b.res.Store(agentResource(t, "A", "1"))
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p, Workers: 1, AgentTypes: []AgentType{b.agentType()}})
	slow, fast := dial(t, addr), dial(t, addr)
	for _, c := range []*client{slow, fast} {
		c.ask(xds.Cluster)
		c.ack(c.next())
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL})
		c.ack(c.next())
	}
	p.put(large("a", 1<<20, "0")) // slow does not read it
	late := fast.next()
	fast.ack(late)
	eventually(t, "it is in flight", func() bool {
		return slices.ContainsFunc(s.Inspect(), func(i StreamInfo) bool { return i.Unacked > 1<<20 })
	})
	for i := range 5 {
		b.res.Store(agentResource(t, "A", fmt.Sprint(i+2)))
		s.AgentResourceChanged(agentURL)
		fast.ack(fast.next())
	}
	slow.ack(slow.next())
	if r := slow.next(); r.TypeUrl != agentURL || r.Resources[0].Version != b.res.Load().Version {
		t.Errorf("after the acknowledgement: %v", r)
	}
}

// besides are streams of a server, the first of which are subscribed to the agent resource; none of them is marked.
func besides(t *testing.T, srv *Server, streams, subscribed uint64) map[uint64]*stream {
	t.Helper()
	view := &stillView{set: newPlanner().set}
	all := map[uint64]*stream{}
	for i := range streams {
		st := &stream{srv: srv, id: i, grpc: &sink{}, view: view}
		st.state = delta.New(delta.Config{Dynamic: srv.dynamic}, view.set)
		st.turn.Store(srv.loop.Join("ns", false, st.send))
		srv.add(st)
		if all[i] = st; i < subscribed {
			if err := st.take(t.Context(), encoded(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL})); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, st := range all {
		for l := range st.markedAt {
			st.markedAt[l].Store(0)
		}
	}
	return all
}

// What a change of an agent resource costs: one mark and one look for each stream that subscribed and none for the others, and the
// bytes are the same ones for all.
func TestAgentResourceWork(t *testing.T) {
	const streams, subscribed, size = 500, 50, 1 << 20
	b := &board{}
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{b.agentType()}})
	all := besides(t, srv, streams, subscribed)
	res := agentResource(t, "A", strings.Repeat("x", size))
	b.res.Store(res)
	b.asked.Store(0)
	srv.AgentResourceChanged(agentURL)
	for id, st := range all {
		if marked := st.markedAt[fanout.Config].Load() != 0; marked != (id < subscribed) {
			t.Fatalf("stream %d of %d subscribed ones: marked %v", id, subscribed, marked)
		}
		if st.state.Subscribed(delta.Dynamic(0)) != (id < subscribed) || st.agentWaiting != nil && id >= subscribed {
			t.Fatalf("stream %d keeps state of agent resources", id)
		}
	}
	push := func() {
		for id := range uint64(subscribed) {
			st := all[id]
			if st.send(false, 0) < size {
				t.Fatal("nothing was sent")
			}
			if out := st.grpc.(*sink).got; &out.bufs[1].ReadOnlyData()[0] != &b.res.Load().resource().Buffers()[0].ReadOnlyData()[0] {
				t.Fatal("the bytes are not the shared ones")
			}
			if err := st.take(t.Context(), encoded(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL, ResponseNonce: st.state.Info(delta.Dynamic(0)).Sent})); err != nil {
				t.Fatal(err)
			}
		}
	}
	push()
	if n := b.asked.Load(); n > 3*subscribed { // at the turn (with the look whether there is more), and at the ACK
		t.Errorf("%d looks for %d streams", n, subscribed)
	}
	other := agentResource(t, "A", strings.Repeat("y", size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const runs = 10
	for i := range runs {
		b.res.Store([]*AgentResource{res, other}[(i+1)%2])
		push()
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / runs / subscribed; bytes > 4000 {
		t.Errorf("a push of %d bytes allocates %d bytes for each stream", size, bytes)
	}
}

// Only those streams are marked that are said to be; one that subscribes while it is looked at, as one that has not, is too.
func TestAgentResourceChangedForSome(t *testing.T) {
	b := &board{}
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{b.agentType()}})
	set := newPlanner().set
	views := map[View]*stream{}
	subscribe := func(st *stream) {
		if err := st.take(t.Context(), encoded(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL})); err != nil {
			t.Fatal(err)
		}
		for l := range st.markedAt {
			st.markedAt[l].Store(0)
		}
	}
	var all [4]*stream
	for i := range all {
		view := &stillView{set: set}
		st := &stream{srv: srv, id: uint64(i), grpc: &sink{}, view: view}
		st.state = delta.New(delta.Config{Dynamic: srv.dynamic}, set)
		st.turn.Store(srv.loop.Join("ns", false, st.send))
		srv.add(st)
		if views[view], all[i] = st, st; i < 2 {
			subscribe(st)
		}
	}
	srv.AgentResourceChangedFor(agentURL, func(v View, listens bool) bool {
		st := views[v]
		if listens != (st.id < 2) {
			t.Errorf("stream %d listens: %v", st.id, listens)
		}
		if st.id == 2 {
			subscribe(st)
		}
		return st.id == 0
	})
	for _, st := range all {
		if marked := st.markedAt[fanout.Config].Load() != 0; marked != (st.id%2 == 0) {
			t.Errorf("stream %d is marked: %v", st.id, marked)
		}
	}
	srv.AgentResourceChangedFor("navarch.io/not-served", func(View, bool) bool { t.Error("asked"); return false })
}

// The time that a resumed stream has to ask for all that it held begins with what it asks for, and not while its agent waits
// for the moment to move it.
func TestSettlesAfterEnvoySpoke(t *testing.T) {
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{(&board{}).agentType()}})
	view := &stillView{set: newPlanner().set}
	st := &stream{srv: srv, grpc: &sink{}, view: view, opened: time.Now()}
	st.state = delta.New(delta.Config{Dynamic: srv.dynamic}, view.set)
	st.turn.Store(srv.loop.Join("ns", false, st.send))
	for i, step := range []struct {
		url     string
		settled bool
	}{{agentURL, false}, {xds.Cluster.URL(), true}} {
		if err := st.take(t.Context(), encoded(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: step.url})); err != nil {
			t.Fatal(err)
		}
		if st.check(time.Now()); st.resumeOver {
			t.Fatalf("step %d: settled at once", i)
		}
		if st.check(time.Now().Add(srv.cfg.ResumeTime + time.Second)); st.resumeOver != step.settled {
			t.Errorf("step %d: settled: %v", i, st.resumeOver)
		}
	}
}

func encoded(t *testing.T, r *discoveryv3.DeltaDiscoveryRequest) []byte {
	t.Helper()
	r.Node = &corev3.Node{Id: "test"}
	raw, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// On a state-of-the-world stream, as stock agents ask for PCDS: an answer where there is one, and none where there is not.
func TestAgentResourceOnStateOfTheWorldStream(t *testing.T) {
	b := &board{}
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p, AgentTypes: []AgentType{b.agentType()}})
	c := dialWorld(t, addr)
	ask := func(r *discoveryv3.DiscoveryRequest) {
		t.Helper()
		r.Node = &corev3.Node{Id: "test"}
		if err := c.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() *discoveryv3.DiscoveryResponse {
		t.Helper()
		r, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ask(&discoveryv3.DiscoveryRequest{TypeUrl: agentURL})
	ask(&discoveryv3.DiscoveryRequest{TypeUrl: xds.Cluster.URL()})
	if r := receive(); r.TypeUrl != xds.Cluster.URL() {
		t.Fatalf("nothing was answered with %v", r)
	} else {
		ask(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, VersionInfo: r.VersionInfo})
	}
	versions := map[string]bool{}
	for i := range 3 {
		b.res.Store(agentResource(t, "", fmt.Sprint(i)))
		s.AgentResourceChanged(agentURL)
		r := receive()
		var body structpb.Value
		if err := r.Resources[0].UnmarshalTo(&body); err != nil || body.GetStringValue() != fmt.Sprint(i) {
			t.Fatalf("%v %v", r, err)
		}
		versions[r.VersionInfo] = true
		ask(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, VersionInfo: r.VersionInfo})
	}
	if len(versions) != 3 {
		t.Errorf("versions %v", slices.Collect(maps.Keys(versions)))
	}
	b.res.Store(nil)
	s.AgentResourceChanged(agentURL)
	if r := receive(); len(r.Resources) != 0 || r.VersionInfo != "" {
		t.Errorf("removal: %v", r)
	}
}

// What was found out before a client subscribed says nothing of what it subscribes to; and a client that subscribes is looked at once more
// when the state knows of it, for the resource may have changed meanwhile.
func TestAgentSubscribesMeanwhile(t *testing.T) {
	b := &board{}
	res := agentResource(t, "A", "1")
	b.res.Store(res)
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{b.agentType()}})
	for held, want := range map[string]string{"": "A", res.Version: ""} {
		st := besides(t, srv, 1, 0)[0]
		give(t, st, delta.Request{Type: xds.Cluster})
		r, _ := st.state.Next()
		give(t, st, delta.Request{Type: xds.Cluster, Nonce: r.Nonce})
		if _, more := st.state.Next(); more || !st.state.Idle() {
			t.Fatal("Envoy waits for something")
		}
		st.markedAt[fanout.Answers].Store(0)
		before := st.offersNow()
		ask := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL, ResourceNamesSubscribe: []string{"A"}}
		if held != "" {
			ask.InitialResourceVersions = map[string]string{"A": held}
		}
		if err := st.take(t.Context(), encoded(t, ask)); err != nil {
			t.Fatal(err)
		}
		if st.markedAt[fanout.Answers].Load() == 0 {
			t.Errorf("held %q: the stream waits for no turn", held)
		}
		st.offer(&before)
		if r, sent := st.state.Next(); sent != (want != "") || len(r.Removed) > 0 || sent && r.Set[0].Name != want {
			t.Errorf("held %q: sent %v", held, r)
		}
	}
}
