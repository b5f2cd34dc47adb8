package serve

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// tape is a stream in memory that remembers the types of what was sent.
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

// A stream that waits in the lane of configuration is sent the endpoints that moved at once, and the rest when it has its
// turn there; a turn for all that comes while somebody sends is not lost.
func TestUrgentFirst(t *testing.T) {
	srv := New(Config{Planner: newPlanner()})
	set := func(revision int64, stat, address string, port uint32) *manifest.Set {
		s := &manifest.Set{Revision: revision, Flipped: []string{"a", "b"}}
		s.Types[xds.Cluster][manifest.Scope] = manifest.Of(cluster("a"), cluster("b", func(c *clusterv3.Cluster) { c.AltStatName = stat }))
		s.Types[xds.Endpoint][manifest.Scope] = manifest.Of(endpoints("a", address), endpoints("b", "10.0.0.9:80"))
		s.Types[xds.Listener][manifest.Scope] = manifest.Of(listen("l", port, "r"))
		return s
	}
	view := &stillView{set: set(1, "one", "10.0.0.1:80", 1)}
	out := &tape{}
	st := &stream{srv: srv, grpc: out, view: view}
	st.state = delta.New(delta.Config{Names: &srv.sets}, view.set)
	st.turn.Store(srv.loop.Join("ns", false, st.send))
	sent := func(want ...string) {
		t.Helper()
		if !slices.Equal(out.types, want) {
			t.Fatalf("sent %v, want %v", out.types, want)
		}
		out.types = nil
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
	sent("CDS", "EDS") // first answers are urgent
	give(t, st, delta.Request{Type: xds.Listener})
	st.send(true, 0)
	sent("LDS")

	view.set = set(2, "two", "10.0.0.2:80", 1)
	st.send(true, 0)
	sent("EDS")
	st.send(true, 0)
	sent()
	st.send(false, 0)
	sent("CDS", "EDS") // those of the cluster that changed, again

	view.set = set(3, "two", "10.0.0.3:80", 2)
	out.during = func() {
		if n := st.send(false, 0); n != 0 {
			t.Errorf("%d bytes sent by two at once", n)
		}
	}
	st.send(true, 0)
	sent("EDS", "LDS")
}
