package delta

import (
	"iter"
	"slices"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Request is a request of the client. Its strings and sequences must be valid until State.Request returns.
// State.Request keeps only copies of strings. A nil sequence is empty. Sequences may be iterated several times.
type Request struct {
	Type        xds.Type                  // one of Envoy's types, or a dynamic type (Dynamic)
	Nonce       string                    // nonce of the answered response; empty: the request answers no response
	Subscribe   iter.Seq[string]          // names to subscribe; in state of the world all names of the subscription
	Unsubscribe iter.Seq[string]          // only in delta
	Initial     iter.Seq2[string, string] // names and versions that a client lists after a reconnect; only in the first delta request
	Version     string                    // version_info; only in state of the world
	Failed      bool                      // the request is a NACK
	Error       string                    // message of a NACK; not always valid UTF-8

	// digest computes the fields below; ParseDelta and ParseSotW compute them while they parse.
	digested   bool
	asked      manifest.NameSum // digest of the names in Subscribe without the wildcard
	all        bool             // Subscribe contains the wildcard
	initialSum manifest.Sum     // digest of Initial
}

// digest computes the digests of a request, unless they are computed already.
func (r *Request) digest() {
	if r.digested {
		return
	}
	r.digested = true
	if r.Subscribe != nil {
		for name := range r.Subscribe {
			r.ask(name)
		}
	}
	for name, version := range pairs(r.Initial) {
		r.initialSum.Add(name, version)
	}
}

// ask adds a subscribed name to the digest of names. For the wildcard it sets r.all.
func (r *Request) ask(name string) {
	if name == wildcard {
		r.all = true
		return
	}
	r.asked.Add(name)
}

// wildcard is the name that subscribes to all resources of a type.
const wildcard = "*"

// Request applies a request to the state. It appends the reports of an ACK or NACK to out and returns out. If the nonce
// is not that of a response in flight, the report has the kind Expired, and the subscriptions of the request still
// apply. A request of an unknown type has no effect. After a request, Next may have a response.
func (s *State) Request(r Request, out []Report) []Report {
	if r.Type >= xds.NumTypes && !s.Open(r.Type) {
		return out
	}
	ty := s.typed(r.Type)
	if r.Nonce != "" {
		out = s.acknowledge(r, out)
	}
	if r.Subscribe != nil || r.Unsubscribe != nil { // most requests are only ACKs, and must not allocate
		r = s.shorten(r)
	}
	if r.Type == xds.Cluster && s.assumed {
		s.assumed, s.claims = false, true
		s.exceptUnknown(r.Initial)
	}
	switch {
	case !ty.subscribed:
		s.open(r)
	case s.cfg.SotW:
		s.replaceNames(r.Type, Collect(r.Subscribe))
	default:
		s.unsubscribe(r.Type, Collect(r.Unsubscribe))
		s.subscribe(r.Type, Collect(r.Subscribe))
	}
	s.useLess(r.Type)
	return out
}

// open processes the first request of a type on the stream.
func (s *State) open(r Request) {
	ty := s.typed(r.Type)
	r.digest()
	if r.Type == xds.Listener {
		s.endWarming()
	}
	ty.subscribed, ty.all = true, r.all || r.Type.Wildcard() && !(s.cfg.SotW && r.asked.Len > 0) || isDynamic(r.Type) && r.asked.Len == 0
	stack := s.stack(r.Type)
	names, sum := s.firstNames(&r, stack)
	ty.summed, ty.sum = names, sum
	ty.resumed = r.initialSum.Names.Len > 0
	if cds := &s.types[xds.Cluster]; (r.Type == xds.Listener || r.Type == xds.Route) && cds.sentNonce == 0 {
		s.early = true
	}
	s.claims = s.claims || r.Type == xds.Cluster && (ty.resumed || r.Version != "")
	if s.cfg.SotW && ty.all && r.Version != "" && r.Version == setVersion(stack.Sorted()) {
		ty.resumed, ty.acked, ty.sent = true, stack, stack
		return
	}
	switch {
	case ty.all && !ty.resumed:
		ty.answer = r.Type.Wildcard()
		if !s.cfg.SotW {
			s.subscribe(r.Type, slices.Clone(names.All()))
		}
		return
	case !ty.resumed && !s.cfg.SotW:
		ty.names, ty.fresh = names, names.Len() > 0
	case ty.all:
		ty.acked, ty.sent = stack, stack
		s.resumeAll(ty, stack, r)
		s.subscribe(r.Type, slices.DeleteFunc(slices.Clone(names.All()), func(n string) bool { return stack.Get(n) != nil }))
	default:
		ty.acked, ty.sent, ty.names = stack, stack, names
		s.resumeNamed(ty, stack, r)
	}
	if r.Type == xds.Endpoint {
		s.exposeUnrecorded()
		s.followClusters(s.types[xds.Cluster].flights)
	}
}

// endWarming has all assignments (EDS) sent again to a client that reconnects, has assignments, and has not requested
// clusters. Such an Envoy warms a cluster. It may wait for an assignment that was sent before the cluster on an earlier
// stream.
func (s *State) endWarming() {
	eds := &s.types[xds.Endpoint]
	if s.types[xds.Cluster].subscribed || !eds.resumed {
		return
	}
	for _, name := range eds.names.All() {
		o := eds.current(name)
		o.force = true
		eds.put(name, o)
	}
}

// firstNames returns the names in the first request of a type, and their digest. It leaves out names beyond the memory
// bound (admit). For a wildcard subscription it returns all names, and subscribe applies the bound later.
func (s *State) firstNames(r *Request, stack manifest.Stack) (intern.List[string], manifest.NameSum) {
	names, sum := s.cfg.Names.intern(r.Subscribe, r.asked)
	if s.typed(r.Type).all || sum.Len == 0 || sum == stack.Sum().Names {
		return names, sum
	}
	all := names.All()
	kept := s.admit(r.Type, all)
	if len(kept) == len(all) {
		return names, sum
	}
	return s.cfg.Names.sorted(kept...), sumOf(kept)
}

// exposeUnrecorded marks clusters that a client has although it does not list them. Envoy applies the valid part of a
// response that it refuses. Later it does not list the clusters of that part, but it requests their endpoints. Marked
// clusters count as clusters that the client has. They are removed if the newest set lacks them.
func (s *State) exposeUnrecorded() {
	cds := &s.types[xds.Cluster]
	if !cds.subscribed {
		return
	}
	eds := &s.types[xds.Endpoint]
	expose := func(name string) {
		if o := cds.overrides[name]; o.have == nil && o.flying == 0 && cds.sent.Get(name) == nil {
			o.held = true
			cds.put(name, o)
		}
	}
	if eds.resumed && !cds.resumed {
		for _, name := range eds.names.All() {
			expose(name)
		}
	}
	for name, o := range eds.overrides {
		if o.claimed {
			expose(name)
		}
	}
	for name, o := range cds.overrides {
		if o.have == nil && o.flying == 0 && eds.wants(name) {
			o.held = true
			cds.put(name, o)
		}
	}
}

// resumeAll compares the resources that a client lists after a reconnect with the stack (the newest resources of the
// type). For each difference it adds an override, the separate state of one name. It compares digests first, and names
// only if the digests differ.
func (s *State) resumeAll(ty *typed, stack manifest.Stack, r Request) {
	if r.initialSum == stack.Sum() {
		return
	}
	s.except(r.Type, stack, r.Initial)
	held := matching(stack, r.Initial)
	for r := range stack.All() {
		if _, is := ty.overrides[r.Name]; !is && !found(held, r.Name) {
			ty.put(r.Name, override{})
		}
	}
}

// resumeNamed compares the resources that a client lists after a reconnect with its subscription by name. It adds an
// override for each difference.
func (s *State) resumeNamed(ty *typed, stack manifest.Stack, r Request) {
	if r.initialSum.Names == ty.nameSum() && r.initialSum == stack.Sum() {
		return
	}
	s.except(r.Type, stack, r.Initial)
	held := matching(stack, r.Initial)
	for _, name := range ty.names.All() {
		if _, is := ty.overrides[name]; !is && !found(held, name) {
			ty.put(name, override{force: true})
		}
	}
}

// sumOf returns the digest of a list of names.
func sumOf(names []string) (sum manifest.NameSum) {
	for _, name := range names {
		sum.Add(name)
	}
	return sum
}

// except adds overrides for the names and versions that a client lists (claimed) and that differ from the stack. It
// leaves out names beyond the memory bound (admitClaim).
func (s *State) except(t xds.Type, stack manifest.Stack, claimed iter.Seq2[string, string]) {
	ty := s.typed(t)
	most := max(manyClaims, stack.Len())
	if isDynamic(t) {
		most = maxDynamicNames
	}
	for name, version := range pairs(claimed) {
		if !ty.wants(name) {
			continue
		}
		r := stack.Get(name)
		if r != nil && r.Version == version || r == nil && ty.all && !s.admitClaim(t, name, most) {
			continue
		}
		ty.put(strings.Clone(name), override{held: true, claimed: true})
	}
}

// exceptUnknown adds overrides for clusters that a client lists (claimed) but that do not exist. These clusters are
// then removed. The client was sent all clusters before it requested clusters.
func (s *State) exceptUnknown(claimed iter.Seq2[string, string]) {
	cds, stack := &s.types[xds.Cluster], s.stack(xds.Cluster)
	for name := range pairs(claimed) {
		if _, is := cds.overrides[name]; !is && stack.Get(name) == nil && cds.sent.Get(name) == nil &&
			s.admitClaim(xds.Cluster, name, max(manyClaims, stack.Len())) {
			cds.put(strings.Clone(name), override{held: true, claimed: true})
		}
	}
}

// matching returns the sorted names whose claimed version is that of the stack.
func matching(stack manifest.Stack, claimed iter.Seq2[string, string]) []string {
	var names []string
	for name, version := range pairs(claimed) {
		if r := stack.Get(name); r != nil && r.Version == version {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// subscribe adds names to the subscription, up to the memory bound (admit). Each name is answered, even if its resource
// was sent before.
func (s *State) subscribe(t xds.Type, names []string) {
	if len(names) == 0 {
		return
	}
	ty := s.typed(t)
	d := s.dynamicOf(t)
	if d != nil {
		d.refused = ""
	}
	if i := slices.Index(names, wildcard); i >= 0 {
		names = slices.Delete(names, i, i+1)
		switch {
		case ty.all:
		case d != nil:
			d.subscribeAll()
		default:
			ty.all, ty.acked, ty.sent = true, manifest.Stack{}, manifest.Stack{}
		}
	}
	names = s.admit(t, names)
	for _, name := range names {
		o, is := ty.overrides[name]
		if !is && ty.wants(name) {
			o.have, o.held = ty.acked.Get(name), ty.sent.Get(name) != nil
		}
		o.force = true
		ty.put(name, o)
	}
	if !ty.all || d != nil {
		merged := append(slices.Clone(ty.names.All()), names...)
		slices.Sort(merged)
		ty.names = s.cfg.Names.sorted(slices.Compact(merged)...)
	}
}

// unsubscribe removes names from the subscription and drops their state. It has no effect on a wildcard subscription of
// Envoy's types.
func (s *State) unsubscribe(t xds.Type, names []string) {
	ty := s.typed(t)
	if len(names) > 0 && isDynamic(t) {
		s.unsubscribeDynamic(t, names)
		return
	}
	if len(names) == 0 || ty.all {
		return
	}
	stack := s.stack(t)
	for _, name := range names {
		if ty.unknown.names > 0 && listed(ty.names, name) && !known(stack, name) {
			s.repay(t, len(name))
		}
		delete(ty.overrides, name)
	}
	left := slices.DeleteFunc(slices.Clone(ty.names.All()), func(n string) bool { return found(names, n) })
	ty.names = s.cfg.Names.sorted(left...)
}

// replaceNames replaces the names of the subscription, because a state-of-the-world request lists all names. It has no
// effect on a wildcard subscription.
func (s *State) replaceNames(t xds.Type, names []string) {
	ty := s.typed(t)
	if ty.all {
		return
	}
	var added, gone []string
	for _, name := range names {
		if !listed(ty.names, name) {
			added = append(added, name)
		}
	}
	for _, name := range ty.names.All() {
		if !found(names, name) {
			gone = append(gone, name)
		}
	}
	s.unsubscribe(t, gone)
	s.subscribe(t, added)
}

// pairs returns p. If p is nil, it returns an empty sequence.
func pairs(p iter.Seq2[string, string]) iter.Seq2[string, string] {
	if p == nil {
		return func(func(string, string) bool) {}
	}
	return p
}

// found reports whether a sorted list contains a name.
func found(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

// listed reports whether a sorted list contains a name.
func listed(l intern.List[string], name string) bool { return found(l.All(), name) }
