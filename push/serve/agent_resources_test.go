package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

const agentURL = "navarch.io/test"

// board provides an agent resource that a test changes.
type board struct {
	res   atomic.Pointer[AgentResource]
	asked atomic.Int32
}

func (b *board) agentType() AgentType {
	return AgentType{TypeURL: agentURL, Resource: func(Client, Proxy) *AgentResource { b.asked.Add(1); return b.res.Load() }}
}

func agentResource(t testing.TB, name, content string) *AgentResource {
	t.Helper()
	r, err := EncodeAgentResource(name, structpb.NewStringValue(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An agent resource is sent to the streams that subscribed to it, besides Envoy's resources, and to no other stream.
// Each response states the revision of the configuration.
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
	// While the first version is unacknowledged, the newest waits, and the versions in between are never sent.
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

// refusedThenGone refuses the agent's response; the refused version is recorded and not sent again. Then the resource
// is removed, and the removal is sent.
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

// A stream with missing acknowledgements is sent no agent resources until these arrive, so that a sender never blocks.
// A stream that does not acknowledge an agent resource receives nothing beyond the credit, and is closed at the
// deadline.
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
	// The slow client reads nothing: 1 MB exceeds the flow control window.
	slow.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL})
	eventually(t, "it is in flight", func() bool {
		return slices.ContainsFunc(s.Inspect(), func(i StreamInfo) bool { return i.Unacked > 1<<20 })
	})
	for i := range 20 { // the first would block the only worker
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

// An unacknowledged removal closes no stream, because stock agents do not acknowledge it.
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
	rude.next() // not acknowledged; its deadline is later than that of the removals
	rude.end()
	<-deadline // sent after the stream has ended
	silent.ask(xds.Listener)
	silent.ack(silent.next())
	if n := len(deadline); n != 0 {
		t.Errorf("%d more streams were closed", n)
	}
}

// An agent resource is not sent while Envoy's responses exceed the credit, because the sender would block.
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

// On a state-of-the-world stream, which stock agents use for PCDS, an existing agent resource is sent, and a missing
// one causes no response.
func TestAgentResourceOnSotWStream(t *testing.T) {
	b := &board{}
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p, AgentTypes: []AgentType{b.agentType()}})
	c := dialSotW(t, addr)
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
