package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/xds"
)

// warnings counts log lines with at least the level of a warning.
type warnings struct{ atomic.Int32 }

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w *warnings) Handle(context.Context, slog.Record) error        { w.Add(1); return nil }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w *warnings) WithGroup(string) slog.Handler                    { return w }

// SendAway closes this number of streams without an error in the log: first those without a subscription to the agent
// resource, others only if requested.
func TestSendAway(t *testing.T) {
	b := &board{}
	b.res.Store(agentResource(t, "A", "1"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log warnings
	s, addr := startOn(t, Config{Planner: newPlanner(cluster("a")), AgentTypes: []AgentType{b.agentType()}, Log: slog.New(&log)}, l), l.Addr().String()
	var clients []*client
	for i := range 6 {
		c := dial(t, addr)
		c.ask(xds.Cluster)
		c.ack(c.next())
		if i%2 == 0 {
			c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL, ResourceNamesSubscribe: []string{"A"}})
			c.next()
		}
		clients = append(clients, c)
	}
	count := func(streams, subscribed int) {
		t.Helper()
		eventually(t, "streams are left", func() bool { n, m := s.Subscribed(agentURL); return n == streams && m == subscribed })
	}
	count(6, 3)
	for i, step := range []struct {
		n                         int
		all                       bool
		closed, left, subscribers int
	}{{0, true, 0, 6, 3}, {2, false, 2, 4, 3}, {5, false, 1, 3, 3}, {5, false, 0, 3, 3}} {
		if got := s.SendAway(step.n, agentURL, step.all); got != step.closed {
			t.Errorf("step %d: closed %d, want %d", i, got, step.closed)
		}
		count(step.left, step.subscribers)
	}
	one := s.all()[0]
	if first, second := s.SendAway(1, agentURL, true), s.SendAway(9, agentURL, true); first != 1 || second != 2 {
		t.Errorf("%d and %d of three were closed", first, second)
	}
	count(0, 0)
	if one.kill(errSentAway) {
		t.Error("a stream that was closed was closed again")
	}
	for _, c := range clients {
		c.end()
	}
	if n := log.Load(); n != 0 {
		t.Errorf("%d warnings", n)
	}
	if n, m := s.Subscribed("nobody's"); n != 0 || m != 0 {
		t.Errorf("%d streams, %d of them", n, m)
	}
}

// A join states whether the client has resources already, so that the planner knows whether it is cheap.
func TestJoinSaysWhatIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		delta *discoveryv3.DeltaDiscoveryRequest
		sotw  *discoveryv3.DiscoveryRequest
		want  bool
	}{
		"nothing":                     {delta: &discoveryv3.DeltaDiscoveryRequest{}},
		"something":                   {delta: &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{"a": "1"}}, want: true},
		"an agent moves":              {delta: &discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL}, want: true},
		"state of the world, nothing": {sotw: &discoveryv3.DiscoveryRequest{}},
		"state of the world":          {sotw: &discoveryv3.DiscoveryRequest{VersionInfo: "1"}, want: true},
	} {
		p := newPlanner(cluster("a"))
		b := &board{}
		b.res.Store(agentResource(t, "A", "1"))
		_, addr := start(t, Config{Planner: p, AgentTypes: []AgentType{b.agentType()}})
		if n := (&corev3.Node{Id: "n"}); c.delta != nil {
			c.delta.Node, c.delta.TypeUrl = n, cmp.Or(c.delta.TypeUrl, xds.Cluster.URL())
			cl := dial(t, addr)
			cl.send(c.delta)
			cl.next()
		} else {
			c.sotw.Node, c.sotw.TypeUrl = n, xds.Cluster.URL()
			cl := dialSotW(t, addr)
			if err := cl.Send(c.sotw); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if _, err := cl.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		p.mu.Lock()
		if got := p.joined[0]; got.Holds != c.want || got.Secure {
			t.Errorf("%s: %+v", name, got)
		}
		p.mu.Unlock()
	}
}

// An agent may open a stream to be admitted while another replica serves its Envoy. The stream is confirmed once more
// at Envoy's first request; other streams are not. If it cannot be confirmed, it ends, and the agent connects again
// with new metadata.
func TestEarlyStreamsAreConfirmed(t *testing.T) {
	b := &board{}
	b.res.Store(agentResource(t, "A", "1"))
	p := newPlanner(cluster("a"))
	_, addr := start(t, Config{Planner: p, AgentTypes: []AgentType{b.agentType()}})
	agent := func() *client {
		c := dial(t, addr)
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: agentURL, ResourceNamesSubscribe: []string{"A"}})
		c.ack(c.next())
		return c
	}
	early, plain := agent(), dial(t, addr)
	plain.ask(xds.Cluster)
	plain.ack(plain.next())
	if n := p.confirmed.Load(); n != 0 {
		t.Errorf("%d were confirmed before Envoy spoke", n)
	}
	p.confirm = func() error { p.quietly(cluster("b")); return nil }
	early.ask(xds.Cluster)
	r := early.next()
	if len(r.Resources) != 2 {
		t.Errorf("answered with %v", r)
	}
	early.ack(r)
	early.ask(xds.Listener)
	early.ack(early.next())
	if n := p.confirmed.Load(); n != 1 {
		t.Errorf("confirmed %d times", n)
	}
	p.confirm = func() error { return status.Error(codes.Unavailable, "nobody knows") }
	late := agent()
	late.ask(xds.Cluster)
	if got := late.end(); got.Code() != codes.Unavailable || got.Message() != "nobody knows" {
		t.Errorf("ended with %v", got)
	}
}

// At its first request on a new replica, Envoy may have newer resources than the replica's last turn for the stream
// used: its claims are compared with the current resources, and no resource that Envoy has is sent again.
func TestNewClaimsAreComparedWithWhatThereIs(t *testing.T) {
	b := &board{}
	b.res.Store(agentResource(t, "A", "1"))
	p := newPlanner(cluster("a"))
	_, addr := start(t, Config{Planner: p, AgentTypes: []AgentType{b.agentType()}})
	c := dial(t, addr)
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: agentURL, ResourceNamesSubscribe: []string{"A"}})
	c.ack(c.next())
	newer := cluster("a", func(c *clusterv3.Cluster) { c.AltStatName = "edited" })
	p.confirm = func() error { p.quietly(newer); return nil }
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL(), InitialResourceVersions: map[string]string{"a": newer.Version}})
	p.put(cluster("b"))
	if r := c.next(); len(r.Resources) != 1 || r.Resources[0].Name != "b" {
		t.Errorf("sent %v", r)
	}
}

// The lag is the longest wait of streams that can be sent to and have not had their turn; it ends with the turn.
func TestLag(t *testing.T) {
	p := newPlanner(cluster("a"))
	s, addr := start(t, Config{Planner: p})
	c := dial(t, addr)
	c.ask(xds.Cluster)
	c.ack(c.next())
	eventually(t, "the acknowledgement is here, and its turn is over", func() bool {
		return unacked(s) == 0 && !s.all()[0].sending() && s.Lag(time.Now().Add(time.Hour)) == 0
	})
	st := s.all()[0]
	st.markedAt[fanout.Endpoints].Store(time.Now().Add(-time.Minute).UnixNano())
	if lag := s.Lag(time.Now()); lag < time.Minute || lag > time.Minute+patience {
		t.Errorf("lag %v", lag)
	}
	st.mu.Lock()
	st.sender.task = all // a sending goroutine exists: the client is slow
	st.mu.Unlock()
	if lag := s.Lag(time.Now()); lag != 0 {
		t.Errorf("lag %v of a client that does not read", lag)
	}
	// A turn in the meantime finds nothing to do; the sending goroutine checks again before it stops, and then nothing
	// waits.
	st.mark(fanout.Config, time.Now())
	eventually(t, "the turn is over", func() bool { return s.Waiting(fanout.Config) == 0 })
	st.sendSome()
	if lag := s.Lag(time.Now().Add(time.Hour)); lag != 0 {
		t.Errorf("lag %v after all was sent", lag)
	}
	p.put(cluster("b"))
	c.ack(c.next())
	eventually(t, "nothing waits", func() bool { return s.Lag(time.Now().Add(time.Hour)) == 0 })
}
