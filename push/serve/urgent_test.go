package serve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// tape is a stream in memory that records the types of sent messages.
type tape struct {
	sink
	types  []string
	during func() // called by the next send
}

func (s *tape) SendMsg(m any) error {
	kind := "other"
	body := string(m.(*response).bufs[len(m.(*response).bufs)-1].ReadOnlyData())
	for t := range xds.NumTypes {
		if strings.Contains(body, t.URL()) {
			kind = t.String()
		}
	}
	s.types = append(s.types, kind)
	if f := s.during; f != nil {
		s.during = nil
		f()
	}
	return nil
}

var _ grpc.ServerStream = (*tape)(nil)

// sent fails the test unless exactly these types were sent since its last call.
func (s *tape) sent(t *testing.T, want []string) {
	t.Helper()
	if !slices.Equal(s.types, want) {
		t.Fatalf("sent %v, want %v", s.types, want)
	}
	s.types = nil
}

// taped returns a stream whose client has received nothing, with its view and its record.
func taped(srv *Server, set *manifest.Set) (st *stream, proxy *stillProxy, out *tape) {
	proxy, out = &stillProxy{set: set}, &tape{}
	st = &stream{srv: srv, grpc: out, exchange: exchange{proxy: proxy}}
	st.state = delta.New(delta.Config{Names: &srv.sets}, set)
	st.turn.Store(srv.loop.Join("ns", false, st.send))
	return st, proxy, out
}

// A stream that waits in the lane of configuration is sent changed endpoints at once, and the rest in its turn of that
// lane. A turn for all that arrives while a goroutine sends is not lost.
func TestUrgentFirst(t *testing.T) {
	srv := New(Config{Planner: newPlanner()})
	set := func(revision int64, stat, address string, port uint32) *manifest.Set {
		s := &manifest.Set{Revision: revision, FastHosts: []string{"a", "b"}}
		s.Types[xds.Cluster][manifest.Scope] = manifest.Of(cluster("a"), cluster("b", func(c *clusterv3.Cluster) { c.AltStatName = stat }))
		s.Types[xds.Endpoint][manifest.Scope] = manifest.Of(endpoints("a", address), endpoints("b", "10.0.0.9:80"))
		s.Types[xds.Listener][manifest.Scope] = manifest.Of(listen("l", port, "r"))
		return s
	}
	st, proxy, out := taped(srv, set(1, "one", "10.0.0.1:80", 1))
	sent := func(want ...string) {
		t.Helper()
		out.sent(t, want)
		for _, kind := range want {
			for typ := range xds.NumTypes {
				if typ.String() == kind {
					give(t, st, delta.Request{Type: typ, Nonce: st.state.Info(typ).Sent})
				}
			}
		}
	}
	give(t, st, delta.Request{Type: xds.Cluster})
	give(t, st, delta.Request{Type: xds.Endpoint, Subscribe: slices.Values([]string{"a", "b"})})
	st.send(true, 0)
	sent("CDS", "EDS") // first responses are urgent
	give(t, st, delta.Request{Type: xds.Listener})
	st.send(true, 0)
	sent("LDS")

	proxy.set = set(2, "two", "10.0.0.2:80", 1)
	st.send(true, 0)
	sent("EDS")
	st.send(true, 0)
	sent()
	st.send(false, 0)
	sent("CDS", "EDS") // the endpoints of the changed cluster are sent again

	proxy.set = set(3, "two", "10.0.0.3:80", 2)
	out.during = func() {
		if n := st.send(false, 0); n != 0 {
			t.Errorf("%d bytes sent by two at once", n)
		}
	}
	st.send(true, 0)
	sent("EDS", "LDS")
}

// A gateway is sent to first, even if it has waited for the shortest time: sidecars wait until it has acknowledged.
func TestGatewaysAreFirst(t *testing.T) {
	p := newPlanner(cluster("a"))
	srv, addr := start(t, Config{Planner: p, Budget: fanout.Budget{Streams: 1, Bytes: 1, Slow: patience}})
	join := func(id string) *client {
		c := dial(t, addr)
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: id}, TypeUrl: xds.Cluster.URL()})
		c.ack(c.next())
		return c
	}
	busy := join("sidecar~10.0.0.1~busy.shop~shop.svc.cluster.local")
	var all []*client
	for i := range 5 {
		all = append(all, join(fmt.Sprintf("sidecar~10.0.0.2~%d.shop~shop.svc.cluster.local", i)))
	}
	gateway := join("router~10.0.0.3~gw.edge~edge.svc.cluster.local")
	eventually(t, "all are up to date", func() bool { return srv.Waiting(fanout.Answers) == 0 && unacked(srv) == 0 })
	busy.ask(xds.Listener)
	answer := busy.next() // while it is unacknowledged, no other stream is sent to
	p.put(cluster("b"))
	eventually(t, "all wait", func() bool { return srv.Waiting(fanout.Config) == len(all)+2 })
	busy.ack(answer)
	first := gateway.next()
	if n := unacked(srv); n != 1 {
		t.Errorf("%d streams are waited for, want the gateway's alone", n)
	}
	gateway.ack(first)
	for _, c := range append(all, busy) {
		go func() { // in any order
			if r, err := c.Recv(); err == nil {
				c.ack(r)
			}
		}()
	}
	eventually(t, "all have it", func() bool { return srv.Waiting(fanout.Config) == 0 && unacked(srv) == 0 })
}

// unacked returns the number of streams with unacknowledged bytes.
func unacked(s *Server) (n int) {
	for _, i := range s.Inspect() {
		if i.Unacked > 0 {
			n++
		}
	}
	return n
}
