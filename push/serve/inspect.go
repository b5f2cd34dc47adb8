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
	SotW               bool // state of the world
	Opened             time.Time
	Target             int64 // revision of the newest set of its view
	Unacked            int   // bytes
	Types              [xds.NumTypes]delta.Info
	Warming            delta.Warming
	AgentSubscriptions []AgentSubscriptionInfo
	Refusals           []Refusal // those of versions still in quarantine
	Withheld           []Withheld
}

// Inspect lists the streams, by node and then by age.
func (s *Server) Inspect() []StreamInfo {
	return s.InspectOf(func(string, Proxy) bool { return true })
}

// InspectOf lists some streams, by the ids of their nodes and their proxies. Others cost nothing: a question about one proxy, or of one tenant, may come often.
func (s *Server) InspectOf(of func(node string, p Proxy) bool) []StreamInfo {
	var seen []*stream
	for _, st := range s.all() {
		if of(st.client.ID, st.proxy) {
			seen = append(seen, st)
		}
	}
	all := make([]StreamInfo, 0, len(seen))
	sums, withheld := &delta.Sums{}, map[string][]quarantine.Withheld{}
	for _, w := range s.cfg.Quarantine.Withheld() {
		withheld[w.View] = append(withheld[w.View], w)
	}
	for _, st := range seen {
		all = append(all, st.info(withheld, sums))
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

// withheldFrom is what is withheld from the stream, of all that is withheld from its view.
func (st *stream) withheldFrom(view []quarantine.Withheld) (all []Withheld) {
	for _, w := range view {
		if !w.Covers(st.client.Identity) || !st.isToHave(w.Key) || !st.withholds(w.Key) {
			continue
		}
		if good, asks := st.good(w.Key); asks && good != w.Version {
			all = append(all, Withheld{w, good})
		}
	}
	return all
}

// good is the version of a resource that the client has instead of another one, and whether it asks for the resource.
func (x *exchange) good(k quarantine.Key) (good string, asks bool) {
	x.locked(func() { good, asks = x.state.Good(k.Type, k.Name), x.state.Asks(k.Type, k.Name) })
	return good, asks
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
		of := slices.DeleteFunc(slices.Clone(streams[w.View]), func(st *stream) bool { return !w.Covers(st.client.Identity) })
		if len(of) == 0 || slices.ContainsFunc(of, func(st *stream) bool { return st.isToHave(w.Key) }) {
			all = append(all, w)
		}
	}
	return all
}

func (st *stream) info(withheld map[string][]quarantine.Withheld, sums *delta.Sums) StreamInfo {
	i := StreamInfo{ID: st.id, Node: st.client.ID, Identity: st.client.Identity, Addr: st.client.Addr,
		View: st.proxy.ID(), Namespace: st.proxy.Namespace(), SotW: st.sotw, Opened: st.opened, Target: st.proxy.Set().Revision}
	st.describe(&i, st.srv.cfg.AgentTypes, sums)
	i.Withheld = st.withheldFrom(withheld[i.View])
	return i
}

// describe says what the state machine knows.
func (x *exchange) describe(i *StreamInfo, agents []AgentType, sums *delta.Sums) {
	x.locked(func() {
		i.Unacked = x.state.Unacked()
		for t := range xds.NumTypes {
			i.Types[t] = x.state.InfoWith(t, sums)
		}
		i.Warming = x.state.Warming(time.Now())
		i.AgentSubscriptions, i.Refusals = x.agentSubscriptionInfo(agents), x.standing()
	})
}

// standing is quarantined. Called with the lock held.
func (x *exchange) standing() (all []Refusal) {
	for _, r := range x.refusals {
		if r.Name != "" && x.state.Quarantined(r.Type, r.Name) == r.Version {
			all = append(all, r)
		}
	}
	return all
}

// quarantined are the refusals of versions that are still in quarantine.
func (x *exchange) quarantined() (all []Refusal) {
	x.locked(func() { all = x.standing() })
	return all
}

// Refusals lists what is in quarantine, of all streams.
func (s *Server) Refusals() []Refusal { return s.RefusalsOf(func(string) bool { return true }) }

// RefusalsOf lists what is in quarantine, of the streams of the proxies of some namespaces.
func (s *Server) RefusalsOf(of func(namespace string) bool) (all []Refusal) {
	for _, st := range s.all() {
		if of(st.proxy.Namespace()) {
			all = append(all, st.quarantined()...)
		}
	}
	return all
}

// ProxyOf is the proxy of one stream; nil where there is no such stream.
func (s *Server) ProxyOf(id uint64) Proxy {
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	return st.proxy
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
	return st.holding(), true
}

// holding is what the client holds, or will hold once what is in flight has arrived.
func (x *exchange) holding() (held [xds.NumTypes][]*xds.Resource) {
	x.locked(func() {
		for t := range xds.NumTypes {
			held[t] = x.state.Holding(t)
		}
	})
	return held
}
