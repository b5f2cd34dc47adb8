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
	ID        uint64    // number of the stream, unique in its Server
	Node      string    // node ID
	Identity  string    // SPIFFE ID of the caller; empty if the caller has no identity, as on plain text
	Addr      string    // host:port of the caller
	View      string    // identifier of the proxy's view (Proxy.ID)
	Namespace string    // namespace of the proxy
	SotW      bool      // true for state of the world, false for delta
	Opened    time.Time // time when the client opened the stream
	Target    int64     // the store's revision of the view's newest set
	Unacked   int       // number of sent bytes that the client has neither acknowledged nor refused
	// Behind is the time of the view's first change since the client was last up to date. It is zero if the client is
	// up to date, or if the view has not changed since the stream joined.
	Behind             time.Time
	Types              [xds.NumTypes]delta.Info // indexed by type
	Warming            delta.Warming
	AgentSubscriptions []AgentSubscriptionInfo
	Refusals           []Refusal  // refusals in effect (Server.Refusals); may be nil
	Withheld           []Withheld // versions that are withheld from the client; may be nil
}

// Inspect describes the joined streams, sorted by node ID and then by age, the oldest first. The result is not nil.
func (s *Server) Inspect() []StreamInfo {
	return s.InspectOf(func(string, Proxy) bool { return true })
}

// InspectOf describes the joined streams for which the function selects returns true. They are sorted by node ID and
// then by age, the oldest first. The function must not block. Other streams cost almost nothing, so frequent calls for
// one proxy or one tenant are cheap. The result is not nil.
func (s *Server) InspectOf(selects func(node string, p Proxy) bool) []StreamInfo {
	return s.inspect(func(st *stream) bool { return selects(st.client.ID, st.proxy) })
}

// inspect describes the selected streams, sorted by node ID and then by age.
func (s *Server) inspect(of func(*stream) bool) []StreamInfo {
	var seen []*stream
	for _, st := range s.all() {
		if of(st) {
			seen = append(seen, st)
		}
	}
	all := make([]StreamInfo, 0, len(seen))
	withheld := map[string][]quarantine.Withheld{}
	for _, w := range s.cfg.Quarantine.Withheld() {
		withheld[w.View] = append(withheld[w.View], w)
	}
	for _, st := range seen {
		all = append(all, st.info(withheld))
	}
	slices.SortFunc(all, func(a, b StreamInfo) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Withheld is a version that the quarantine withholds from one stream. The newest set of the stream's view contains the
// version, and the client subscribes to the resource.
type Withheld struct {
	quarantine.Withheld
	Good string // the version that the client has instead; empty if it has no version or an unknown one
}

// withheldFrom returns the versions that are withheld from the stream, and that its client subscribes to without having
// them. The parameter view lists the withheld versions of the stream's view.
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

// good returns the version of a resource that the client has, and whether the client subscribes to the resource.
func (x *exchange) good(k quarantine.Key) (good string, asks bool) {
	x.locked(func() { good, asks = x.state.Good(k.Type, k.Name), x.state.Asks(k.Type, k.Name) })
	return good, asks
}

// Withheld returns the versions that are withheld from views, or from the proxies of one identity in a view. It leaves
// out a version if this replica serves such proxies, and no newest set of these proxies contains the version. The order
// is by view, type and name. The result is nil if there is no such version.
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

// info describes a joined stream. The parameter withheld maps a view to its withheld versions.
func (st *stream) info(withheld map[string][]quarantine.Withheld) StreamInfo {
	i := StreamInfo{ID: st.id, Node: st.client.ID, Identity: st.client.Identity, Addr: st.client.Addr,
		View: st.proxy.ID(), Namespace: st.proxy.Namespace(), SotW: st.sotw, Opened: st.opened, Target: st.proxy.Set().Revision}
	if at := st.movedAt.Load(); at != 0 {
		i.Behind = time.Unix(0, at)
	}
	st.describe(&i, st.srv.cfg.AgentTypes)
	i.Withheld = st.withheldFrom(withheld[i.View])
	return i
}

// describe adds the state of the protocol to a description.
func (x *exchange) describe(i *StreamInfo, agents []AgentType) {
	x.locked(func() {
		i.Unacked = x.state.Unacked()
		for t := range xds.NumTypes {
			i.Types[t] = x.state.Info(t)
		}
		i.Warming = x.state.Warming(time.Now())
		i.AgentSubscriptions, i.Refusals = x.agentSubscriptionInfo(agents), x.standing()
	})
}

// standing returns the result of quarantined. The caller holds the lock.
func (x *exchange) standing() (all []Refusal) {
	for _, r := range x.refusals {
		if r.Name != "" && x.state.Quarantined(r.Type, r.Name) == r.Version {
			all = append(all, r)
		}
	}
	return all
}

// quarantined returns the client's refusals that are still in effect. A version whose refusal is in effect is not sent
// to this client again.
func (x *exchange) quarantined() (all []Refusal) {
	x.locked(func() { all = x.standing() })
	return all
}

// Refusals returns the refusals of all joined streams that are still in effect. A refusal is in effect while the
// refused version is the newest version of its resource. This version is not sent to the client again. Refusals without
// a known resource are left out. The order of the streams is arbitrary, and each stream keeps only its last 16
// refusals. The result is nil if there are no such refusals.
func (s *Server) Refusals() []Refusal { return s.RefusalsOf(func(string) bool { return true }) }

// RefusalsOf returns the result of Refusals for the proxies in the namespaces for which the function selects returns
// true.
func (s *Server) RefusalsOf(selects func(namespace string) bool) (all []Refusal) {
	for _, st := range s.all() {
		if selects(st.proxy.Namespace()) {
			all = append(all, st.quarantined()...)
		}
	}
	return all
}

// ProxyOf returns the proxy of the joined stream with an ID (StreamInfo.ID), or nil if there is no such stream.
func (s *Server) ProxyOf(id uint64) Proxy {
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	return st.proxy
}

// Dump returns the resources of a stream's client, indexed by type and sorted by name. The parameter id is
// StreamInfo.ID. A type without a subscription has nil. Responses in flight count as accepted. Resources whose version
// is unknown are missing. The caller may change the slices, but not the resources. The result ok is false if no joined
// stream has this ID.
func (s *Server) Dump(id uint64) (held [xds.NumTypes][]*xds.Resource, ok bool) {
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil {
		return held, false
	}
	return st.holding(), true
}

// holding returns the resources of the client by type. Responses in flight count as accepted.
func (x *exchange) holding() (held [xds.NumTypes][]*xds.Resource) {
	x.locked(func() {
		for t := range xds.NumTypes {
			held[t] = x.state.Holding(t)
		}
	})
	return held
}
