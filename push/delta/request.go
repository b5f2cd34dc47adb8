package delta

import (
	"iter"
	"slices"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Request holds the parts of a request for the state machine. Its strings must live until State.Request returns.
type Request struct {
	Type        xds.Type
	Nonce       string
	Subscribe   iter.Seq[string] // of a state-of-the-world stream: all names
	Unsubscribe iter.Seq[string]
	Initial     iter.Seq2[string, string] // name, version
	Version     string                    // version_info, state of the world only
	Failed      bool
	Error       string

	// Results of digest; a parser that reads all names computes them on the way.
	digested   bool
	asked      manifest.NameSum // of Subscribe, without the wildcard
	all        bool             // Subscribe contains the wildcard
	initialSum manifest.Sum     // of Initial
}

// digest sums up the lists of a request.
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

// ask adds a subscribed name to the sum of names; the wildcard sets all instead.
func (r *Request) ask(name string) {
	if name == wildcard {
		r.all = true
		return
	}
	r.asked.Add(name)
}

const wildcard = "*"

// Request applies a request to the state. It appends reports to out.
func (s *State) Request(r Request, out []Report) []Report {
	if r.Type >= xds.NumTypes && !s.Open(r.Type) {
		return out
	}
	ty := s.typed(r.Type)
	if r.Nonce != "" {
		out = s.acknowledge(r, out)
	}
	if r.Subscribe != nil || r.Unsubscribe != nil { // most requests only acknowledge, and must not allocate
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

// endWarming sends all assignments again to a resuming Envoy that does not request clusters. Envoy does that while a
// cluster warms, possibly for an assignment that came before the cluster on an earlier stream.
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

// firstNames returns the names of a first request for which there is room, and their sum. For a type of which
// everything is sent, subscribe examines them.
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

// exposeUnrecorded finds clusters that a client has without knowing it: Envoy applies the good part of a response that
// it refuses, and does not record the clusters, but requests their endpoints. They are removed like others.
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

// resumeAll compares a client's list of held resources with the whole stack: first by their sums, and name by name only
// if these differ.
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

// resumeNamed compares a client's list of held resources with its subscriptions.
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

// sumOf returns the sum of a list of names.
func sumOf(names []string) (sum manifest.NameSum) {
	for _, name := range names {
		sum.Add(name)
	}
	return sum
}

// except adds overrides for the claimed versions that differ from the stack.
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

// exceptUnknown adds overrides for a client's clusters that do not exist. The client requests clusters only after it
// was sent all of them.
func (s *State) exceptUnknown(claimed iter.Seq2[string, string]) {
	cds, stack := &s.types[xds.Cluster], s.stack(xds.Cluster)
	for name := range pairs(claimed) {
		if _, is := cds.overrides[name]; !is && stack.Get(name) == nil && cds.sent.Get(name) == nil &&
			s.admitClaim(xds.Cluster, name, max(manyClaims, stack.Len())) {
			cds.put(strings.Clone(name), override{held: true, claimed: true})
		}
	}
}

// matching returns the sorted names of the claimed versions that equal the stack's.
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

// subscribe adds names for which there is room. Each is answered, even if it was sent before.
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

// unsubscribe drops names with their state. Wildcard types stay subscribed.
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

// replaceNames is the state-of-the-world form: a request lists all names.
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

// pairs returns p, or an empty sequence if p is nil.
func pairs(p iter.Seq2[string, string]) iter.Seq2[string, string] {
	if p == nil {
		return func(func(string, string) bool) {}
	}
	return p
}

func found(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

func listed(l intern.List[string], name string) bool { return found(l.All(), name) }
