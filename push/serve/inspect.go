package serve

import (
	"cmp"
	"slices"
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
)

// StreamInfo describes one stream, for debugging.
type StreamInfo struct {
	ID        uint64
	Node      string // its id
	Identity  string
	Addr      string
	View      string
	Namespace string
	SotW      bool // state of the world
	Opened    time.Time
	Target    int64 // revision of the newest set of its view
	Unacked   int   // bytes
	// Behind is when the view first moved since the client was up to date; zero: the client is up to date, or has never
	// been.
	Behind             time.Time
	Types              [xds.NumTypes]delta.Info
	Warming            delta.Warming
	AgentSubscriptions []AgentSubscriptionInfo
	Refusals           []Refusal // of versions that are still in quarantine
	Withheld           []Withheld
}

// Inspect lists the streams, by node and then by age.
func (s *Server) Inspect() []StreamInfo {
	return s.InspectOf(func(string, Proxy) bool { return true })
}

// InspectOf lists the streams that of selects by node id and proxy. Others cost almost nothing, because requests about
// one proxy or one tenant may be frequent.
func (s *Server) InspectOf(of func(node string, p Proxy) bool) []StreamInfo {
	return s.inspect(func(st *stream) bool { return of(st.client.ID, st.proxy) })
}

// inspect lists the selected streams, by node and then by age.
func (s *Server) inspect(of func(*stream) bool) []StreamInfo {
	var seen []*stream
	for _, st := range s.all() {
		if of(st) {
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

// Withheld is a version that is withheld from one stream whose set contains it.
type Withheld struct {
	quarantine.Withheld
	Good string // the version that the client has instead; may be empty
}

// withheldFrom returns the versions that are withheld from the stream, given those of its view.
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

// good returns the version of a resource that the client has instead of another, and whether it subscribes to the
// resource.
func (x *exchange) good(k quarantine.Key) (good string, asks bool) {
	x.locked(func() { good, asks = x.state.Good(k.Type, k.Name), x.state.Asks(k.Type, k.Name) })
	return good, asks
}

// Withheld lists the versions that are withheld from views. For views with proxies of this replica it lists only
// versions in the set of one of them; for others it lists all until they are forgotten.
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

// info returns the description of a joined stream. withheld lists the withheld versions by view, and sums caches sums
// over clients with equal resources.
func (st *stream) info(withheld map[string][]quarantine.Withheld, sums *delta.Sums) StreamInfo {
	i := StreamInfo{ID: st.id, Node: st.client.ID, Identity: st.client.Identity, Addr: st.client.Addr,
		View: st.proxy.ID(), Namespace: st.proxy.Namespace(), SotW: st.sotw, Opened: st.opened, Target: st.proxy.Set().Revision}
	if at := st.movedAt.Load(); at != 0 {
		i.Behind = time.Unix(0, at)
	}
	st.describe(&i, st.srv.cfg.AgentTypes, sums)
	i.Withheld = st.withheldFrom(withheld[i.View])
	return i
}

// describe adds the data of the state machine.
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

// standing is quarantined. The caller holds the lock.
func (x *exchange) standing() (all []Refusal) {
	for _, r := range x.refusals {
		if r.Name != "" && x.state.Quarantined(r.Type, r.Name) == r.Version {
			all = append(all, r)
		}
	}
	return all
}

// quarantined returns the refusals of versions that are still in quarantine.
func (x *exchange) quarantined() (all []Refusal) {
	x.locked(func() { all = x.standing() })
	return all
}

// Refusals lists the refused versions in quarantine, of all streams.
func (s *Server) Refusals() []Refusal { return s.RefusalsOf(func(string) bool { return true }) }

// RefusalsOf lists the refused versions in quarantine, of streams of proxies in the selected namespaces.
func (s *Server) RefusalsOf(of func(namespace string) bool) (all []Refusal) {
	for _, st := range s.all() {
		if of(st.proxy.Namespace()) {
			all = append(all, st.quarantined()...)
		}
	}
	return all
}

// ProxyOf returns the proxy of one stream; nil for an unknown id.
func (s *Server) ProxyOf(id uint64) Proxy {
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	return st.proxy
}

// Dump returns the resources that one stream holds, or will hold after all responses in flight, by type and name; false
// for an unknown id.
func (s *Server) Dump(id uint64) (held [xds.NumTypes][]*xds.Resource, ok bool) {
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil {
		return held, false
	}
	return st.holding(), true
}

// holding returns the resources that the client holds, or will hold after all responses in flight.
func (x *exchange) holding() (held [xds.NumTypes][]*xds.Resource) {
	x.locked(func() {
		for t := range xds.NumTypes {
			held[t] = x.state.Holding(t)
		}
	})
	return held
}
