package serve

import (
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/xds"
)

// streamsOf returns streams of a server, the first of which are subscribed to the agent resource; none of them is
// marked.
func streamsOf(t *testing.T, srv *Server, streams, subscribed uint64) map[uint64]*stream {
	t.Helper()
	proxy := &stillProxy{set: newPlanner().set}
	all := map[uint64]*stream{}
	for i := range streams {
		st := &stream{srv: srv, id: i, grpc: &sink{}, exchange: exchange{proxy: proxy}}
		st.state = delta.New(delta.Config{Dynamic: srv.dynamic}, proxy.set)
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

// A change of an agent resource costs one mark and one query for each subscribed stream, and nothing for the others;
// all streams share the encoded bytes.
func TestAgentResourceWork(t *testing.T) {
	const streams, subscribed, size = 500, 50, 1 << 20
	b := &board{}
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{b.agentType()}})
	all := streamsOf(t, srv, streams, subscribed)
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
	if n := b.asked.Load(); n > 3*subscribed { // in the turn (with the check for more), and at the ACK
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

// Exactly the selected streams are marked. A stream that subscribes while the callback selects it is passed as
// unsubscribed, and is still marked.
func TestAgentResourceChangedForSome(t *testing.T) {
	b := &board{}
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{b.agentType()}})
	set := newPlanner().set
	views := map[Proxy]*stream{}
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
		proxy := &stillProxy{set: set}
		st := &stream{srv: srv, id: uint64(i), grpc: &sink{}, exchange: exchange{proxy: proxy}}
		st.state = delta.New(delta.Config{Dynamic: srv.dynamic}, set)
		st.turn.Store(srv.loop.Join("ns", false, st.send))
		srv.add(st)
		if views[proxy], all[i] = st, st; i < 2 {
			subscribe(st)
		}
	}
	srv.AgentResourceChangedFor(agentURL, func(p Proxy, listens bool) bool {
		st := views[p]
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
	srv.AgentResourceChangedFor("navarch.io/not-served", func(Proxy, bool) bool { t.Error("asked"); return false })
}

// A resumed stream has a limited time to request all that it had. The time starts with its Envoy's first request, and
// not while its agent waits to move it.
func TestResumeEndsAfterEnvoySpoke(t *testing.T) {
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{(&board{}).agentType()}})
	proxy := &stillProxy{set: newPlanner().set}
	st := &stream{srv: srv, grpc: &sink{}, exchange: exchange{proxy: proxy}, opened: time.Now()}
	st.state = delta.New(delta.Config{Dynamic: srv.dynamic}, proxy.set)
	st.turn.Store(srv.loop.Join("ns", false, st.send))
	for i, step := range []struct {
		url  string
		over bool
	}{{agentURL, false}, {xds.Cluster.URL(), true}} {
		if err := st.take(t.Context(), encoded(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: step.url})); err != nil {
			t.Fatal(err)
		}
		if st.check(time.Now()); st.resumeOver {
			t.Fatalf("step %d: the resume is over at once", i)
		}
		if st.check(time.Now().Add(srv.cfg.ResumeTime + time.Second)); st.resumeOver != step.over {
			t.Errorf("step %d: the resume is over: %v", i, st.resumeOver)
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

// Offers that were collected before a client subscribed are not used for its subscription. The client is checked once
// more after its subscription, because the resource may have changed meanwhile.
func TestAgentSubscribesMeanwhile(t *testing.T) {
	b := &board{}
	res := agentResource(t, "A", "1")
	b.res.Store(res)
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{b.agentType()}})
	for held, want := range map[string]string{"": "A", res.Version: ""} {
		st := streamsOf(t, srv, 1, 0)[0]
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
