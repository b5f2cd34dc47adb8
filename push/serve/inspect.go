package serve

import (
	"cmp"
	"slices"
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
)

// StreamInfo is one stream, for debugging.
type StreamInfo struct {
	ID                 uint64
	Node               string // its id
	Identity           string
	Addr               string
	View               string
	Namespace          string
	World              bool // state of the world
	Opened             time.Time
	Target             int64 // revision of the newest set of its view
	Unacked            int   // bytes
	Types              [xds.NumTypes]delta.Info
	AgentSubscriptions []AgentSubscriptionInfo
	Refusals           []Refusal // those of versions still in quarantine
	Withheld           []Withheld
}

// Inspect lists the streams, by node and then by age.
func (s *Server) Inspect() []StreamInfo {
	var all []StreamInfo
	withheld := map[string][]quarantine.Withheld{}
	for _, w := range s.cfg.Quarantine.Withheld() {
		withheld[w.View] = append(withheld[w.View], w)
	}
	for _, st := range s.all() {
		all = append(all, st.info(withheld))
	}
	slices.SortFunc(all, func(a, b StreamInfo) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Withheld is a version that is withheld from one stream, which is to have it.
type Withheld struct {
	quarantine.Withheld
	Good string // the version that the client has instead; empty: none
}

// withheldInfo is what is withheld from the stream, of all that is withheld from its view. Called with the lock held.
func (st *stream) withheldInfo(view []quarantine.Withheld) (all []Withheld) {
	for _, w := range view {
		good := st.state.Good(w.Type, w.Name)
		if st.isToHave(w.Key) && st.state.Asks(w.Type, w.Name) && good != w.Version && st.srv.cfg.Quarantine.Withholds(w.Key, st.client.Envoy, st.id) {
			all = append(all, Withheld{w, good})
		}
	}
	return all
}

// Withheld lists what is withheld from views: of a view that proxies of this replica have, what one of them is to have; of
// others everything, until it is forgotten.
func (s *Server) Withheld() (all []quarantine.Withheld) {
	views := s.cfg.Quarantine.Withheld()
	if len(views) == 0 {
		return nil
	}
	streams := s.byView()
	for _, w := range views {
		of := streams[w.View]
		if len(of) == 0 || slices.ContainsFunc(of, func(st *stream) bool { return st.isToHave(w.Key) }) {
			all = append(all, w)
		}
	}
	return all
}

func (st *stream) info(withheld map[string][]quarantine.Withheld) StreamInfo {
	st.mu.Lock()
	defer st.mu.Unlock()
	i := StreamInfo{ID: st.id, Node: st.client.ID, Identity: st.client.Identity, Addr: st.client.Addr,
		View: st.view.ID(), Namespace: st.view.Namespace(), World: st.sotw, Opened: st.opened, Target: st.view.Set().Revision,
		Unacked: st.state.Unacked()}
	for t := range xds.NumTypes {
		i.Types[t] = st.state.Info(t)
	}
	i.AgentSubscriptions, i.Refusals, i.Withheld = st.agentSubscriptionInfo(), st.standing(), st.withheldInfo(withheld[i.View])
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
