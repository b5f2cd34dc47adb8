package delta

import (
	"iter"
	"slices"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// Types that a server has in addition to Envoy's are dynamic types. Agents request them on the stream that they forward
// for Envoy. Dynamic types follow the rules of the protocol, with these differences:
//   - A client has at most one resource of such a type. Offer passes the newest one.
//   - A first request without names requests any resource. A first request with names requests the resources with these
//     names. Later requests may change the subscription.
//   - No resource depends on them, so they are sent before all others, within the credit.
//   - A client accepts or refuses a whole response. After a refusal it keeps its previous resource. The refused version
//     is not sent again until the client accepts another version or subscribes again.
//   - A state-of-the-world stream gets no response to a subscription without a resource, as Istio's agents expect.

// MaxDynamic is the maximum number of dynamic types of a State.
const MaxDynamic = 8

// These limit the memory that a client can cause with one dynamic type.
const (
	maxDynamicNames = 64  // number of requested names
	maxDynamicName  = 256 // length of a name in bytes
)

// Dynamic returns the xds.Type for the type URL Config.Dynamic[i]. The index i begins at 0.
func Dynamic(i int) xds.Type { return xds.Unknown + 1 + xds.Type(i) }

// isDynamic reports whether a type is dynamic.
func isDynamic(t xds.Type) bool { return t > xds.Unknown }

// dynamic is the state of a dynamic type.
type dynamic struct {
	typed
	target  manifest.Stack
	refused string // the version that the client refused last and that is not sent again
}

// Offer sets the client's newest resource of a dynamic type. The stack must contain at most one resource; the zero
// Stack means that there is no resource. Offer has no effect before Open or the first request of the type, and for
// types that are not dynamic.
func (s *State) Offer(t xds.Type, resource manifest.Stack) {
	if d := s.dynamicOf(t); d != nil {
		d.target = resource
	}
}

// Open prepares the state for the first request of a dynamic type, so that Offer has an effect. Repeated calls change
// nothing. Open returns false if Config.Dynamic does not have the type, otherwise true.
func (s *State) Open(t xds.Type) bool {
	i := int(t) - int(Dynamic(0))
	if i < 0 || i >= len(s.cfg.Dynamic) {
		return false
	}
	if s.dynamic == nil {
		s.dynamic = new([MaxDynamic]*dynamic)
	}
	if s.dynamic[i] == nil {
		s.dynamic[i] = &dynamic{}
	}
	return true
}

// dynamicOf returns the state of a dynamic type. The result is nil for other types, and before Open.
func (s *State) dynamicOf(t xds.Type) *dynamic {
	if i := int(t) - int(Dynamic(0)); s.dynamic != nil && i >= 0 && i < MaxDynamic {
		return s.dynamic[i]
	}
	return nil
}

// url returns the URL of a type, which may be dynamic.
func (s *State) url(t xds.Type) string {
	if isDynamic(t) {
		return s.cfg.Dynamic[t-Dynamic(0)]
	}
	return t.URL()
}

// dynamicTypes returns a sequence of the dynamic types that are open.
func (s *State) dynamicTypes() iter.Seq[xds.Type] {
	return func(yield func(xds.Type) bool) {
		if s.dynamic == nil {
			return
		}
		for i, d := range s.dynamic {
			if d != nil && !yield(Dynamic(i)) {
				return
			}
		}
	}
}

// InFlightResource reports whether a response of a dynamic type that has a resource is unacknowledged. Responses
// without resources do not count, because Istio's agents do not acknowledge them.
func (s *State) InFlightResource(t xds.Type) bool {
	d := s.dynamicOf(t)
	return d != nil && slices.ContainsFunc(d.flights, func(f flight) bool { return len(f.set) > 0 })
}

// Refused returns the version of a dynamic type that the client refused last. It returns "" if the client has refused
// no version, or has since accepted another version or subscribed again. In state of the world, only a request with a
// new name is a new subscription. Refused returns "" also for types that are not dynamic.
func (s *State) Refused(t xds.Type) string {
	if d := s.dynamicOf(t); d != nil {
		return d.refused
	}
	return ""
}

// subscribeAll processes a wildcard subscription that follows the first request.
func (d *dynamic) subscribeAll() {
	if d.fresh { // the names of the first request are answered together with the wildcard
		d.fresh = false
		for _, name := range d.names.All() {
			d.put(name, override{force: true})
		}
	}
	for r := range d.sent.All() {
		if _, is := d.overrides[r.Name]; !is && !d.wants(r.Name) {
			d.put(r.Name, override{}) // the resource was not requested before
		}
	}
	d.all = true
}

// unsubscribeDynamic removes names, or the wildcard, from the subscription of a dynamic type. It drops the state of
// names that are no longer subscribed.
func (s *State) unsubscribeDynamic(t xds.Type, names []string) {
	d := s.dynamicOf(t)
	if found(names, wildcard) {
		d.all = false
	}
	left := slices.DeleteFunc(slices.Clone(d.names.All()), func(n string) bool { return found(names, n) })
	d.names = s.cfg.Names.sorted(left...)
	for name, o := range d.overrides {
		switch {
		case !d.wants(name):
			delete(d.overrides, name)
		case found(names, name):
			o.force = false
			d.tidy(name, o)
		}
	}
	s.recount(t)
}

// refuseDynamic processes the refusal of a response of a dynamic type.
func (s *State) refuseDynamic(r Request, f flight, out []Report) []Report {
	d := s.dynamicOf(r.Type)
	before := d.acked
	d.acked, d.ackedRevision = f.at, f.revision
	report := Report{Kind: Nacked, Type: r.Type, Nonce: nonceText(f.nonce), Revision: f.revision, Text: excerpt(r.Type, r.Error)}
	if len(f.set) == 0 { // a removal has no content to refuse
		d.accept(f)
		return append(out, report)
	}
	had := func(name string) override {
		o := d.overrideOf(name, before)
		if o.flying == f.nonce {
			o.flying, o.now = 0, nil
		}
		o.held = o.claimed
		return o
	}
	for _, res := range f.set {
		if !d.wants(res.Name) {
			continue
		}
		o := had(res.Name)
		d.refused, o.force = res.Version, false
		d.put(res.Name, o)
		report.Name, report.Version = res.Name, res.Version
		if o.have != nil {
			report.Good = o.have.Version
		}
	}
	for _, name := range f.removed {
		d.put(name, had(name))
	}
	return append(out, report)
}

// refusedNewest reports whether the client has refused the newest resource. If so, the client keeps its previous
// resource, which may have another name.
func (d *dynamic) refusedNewest() bool {
	for r := range d.target.All() {
		return d.wants(r.Name) && r.Version == d.refused
	}
	return false
}

// absentDynamic returns the verb for a name of a dynamic type that has no resource. The argument holds reports whether
// the client may have a resource of that name.
func (s *State) absentDynamic(t xds.Type, o override, holds bool) verb {
	switch {
	case holds && !o.force && s.dynamicOf(t).refusedNewest():
		return hold
	case holds, o.force && !s.cfg.SotW:
		return remove
	}
	return hold
}
