package serve

import (
	"cmp"
	"slices"
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/xds"
)

// StreamInfo is one stream, for debugging.
type StreamInfo struct {
	ID        uint64
	Node      string // its id
	Identity  string
	Addr      string
	View      string
	Namespace string
	World     bool // state of the world
	Opened    time.Time
	Target    int64 // revision of the newest set of its view
	Unacked   int   // bytes
	Types     [xds.NumTypes]delta.Info
	Asides    []AsideInfo
	Refusals  []Refusal // those of versions still in quarantine
}

// Inspect lists the streams, by node and then by age.
func (s *Server) Inspect() []StreamInfo {
	var all []StreamInfo
	for _, st := range s.all() {
		all = append(all, st.info())
	}
	slices.SortFunc(all, func(a, b StreamInfo) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	return all
}

func (st *stream) info() StreamInfo {
	st.mu.Lock()
	defer st.mu.Unlock()
	i := StreamInfo{ID: st.id, Node: st.client.ID, Identity: st.client.Identity, Addr: st.client.Addr,
		View: st.view.ID(), Namespace: st.view.Namespace(), World: st.world, Opened: st.opened, Target: st.view.Set().Revision,
		Unacked: st.state.Unacked()}
	for t := range xds.NumTypes {
		i.Types[t] = st.state.Info(t)
	}
	i.Asides, i.Refusals = st.sideInfo(), st.standing()
	return i
}

// standing are the refusals of versions that are still in quarantine. Called with the lock held.
func (st *stream) standing() (all []Refusal) {
	for _, r := range st.refusals {
		if r.Name != "" && st.state.Quarantined(r.Type, r.Name) == r.Version {
			all = append(all, r)
		}
	}
	return all
}

// Refusals lists what is in quarantine, of all streams.
func (s *Server) Refusals() (all []Refusal) {
	for _, st := range s.all() {
		st.mu.Lock()
		all = append(all, st.standing()...)
		st.mu.Unlock()
	}
	return all
}

// ViewOf is the view that one stream has; nil where there is no such stream.
func (s *Server) ViewOf(id uint64) View {
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.view
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
