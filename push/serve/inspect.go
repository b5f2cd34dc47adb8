package serve

import (
	"cmp"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/xds"
)

// StreamInfo is one stream, for debugging.
type StreamInfo struct {
	ID        uint64
	Node      *corev3.Node // not to be changed
	Caps      xds.Caps
	Identity  string
	Addr      string
	View      string
	Namespace string
	World     bool // state of the world
	Opened    time.Time
	Target    int64 // revision of the newest set of its view
	Unacked   int   // bytes
	Types     [xds.NumTypes]delta.Info
	Refusals  []Refusal // those of versions still in quarantine
}

// Inspect lists the streams, by node and then by age.
func (s *Server) Inspect() []StreamInfo {
	var all []StreamInfo
	for _, st := range s.all() {
		all = append(all, st.info())
	}
	slices.SortFunc(all, func(a, b StreamInfo) int {
		return cmp.Or(cmp.Compare(a.Node.GetId(), b.Node.GetId()), cmp.Compare(a.ID, b.ID))
	})
	return all
}

func (st *stream) info() StreamInfo {
	st.mu.Lock()
	defer st.mu.Unlock()
	i := StreamInfo{ID: st.id, Node: st.client.Node, Caps: st.client.Caps, Identity: st.client.Identity, Addr: st.client.Addr,
		View: st.view.ID(), Namespace: st.view.Namespace(), World: st.world, Opened: st.opened, Target: st.view.Set().Revision,
		Unacked: st.state.Unacked()}
	for t := range xds.NumTypes {
		i.Types[t] = st.state.Info(t)
	}
	for _, r := range st.refusals {
		if v, ok := i.Types[r.Type].Refused[r.Name]; ok && v == r.Version {
			i.Refusals = append(i.Refusals, r)
		}
	}
	return i
}

// Dump is what one stream holds, or will hold once what is in flight has arrived, by type and name; false where there
// is no such stream.
func (s *Server) Dump(id uint64) (held [xds.NumTypes][]*xds.Resource, ok bool) {
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil {
		return held, false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for t := range xds.NumTypes {
		held[t] = st.state.Holding(t)
	}
	return held, true
}
