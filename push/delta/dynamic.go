package delta

import (
	"iter"
	"slices"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// Types that a server has beside Envoy's are dynamic: agents request them on the stream that they carry for Envoy. They
// follow the rules of the protocol, with these differences:
//   - a client has at most one resource of such a type, and the newest is an event of its own (Offer);
//   - a first request without names requests any resource, one with names requests these; later requests may change
//     both;
//   - no resource depends on them: they are sent before all others, within the credit;
//   - a client accepts a whole response or refuses it, and then keeps its previous resource. A version that it refused
//     is not sent again until it accepts another one, or requests the type again;
//   - without a resource, a stream of state of the world gets no response, as stock agents expect.

// MaxDynamic bounds the number of dynamic types.
const MaxDynamic = 8

// Bounds of the memory that a client can cause with a dynamic type.
const (
	maxDynamicNames = 64  // requested names
	maxDynamicName  = 256 // bytes of one name
)

// Dynamic returns the type of Config.Dynamic[i].
func Dynamic(i int) xds.Type { return xds.Unknown + 1 + xds.Type(i) }

func isDynamic(t xds.Type) bool { return t > xds.Unknown }

// dynamic is the state of a dynamic type.
type dynamic struct {
	typed
	target  manifest.Stack
	refused string // the last version that the client refused, which is not sent again
}

// Offer sets a client's resource of a dynamic type: the only resource of the stack, or none. Streams that did not
// request the type ignore it.
func (s *State) Offer(t xds.Type, resource manifest.Stack) {
	if d := s.dynamicOf(t); d != nil {
		d.target = resource
	}
}

// Open prepares the state for the first request of a dynamic type; Offer has no effect before. False: there is no such
// type.
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

// dynamicOf returns the state of a dynamic type; nil for other types, and before Open.
func (s *State) dynamicOf(t xds.Type) *dynamic {
	if i := int(t) - int(Dynamic(0)); s.dynamic != nil && i >= 0 && i < MaxDynamic {
		return s.dynamic[i]
	}
	return nil
}

// url returns the type's URL, also of a dynamic type.
func (s *State) url(t xds.Type) string {
	if isDynamic(t) {
		return s.cfg.Dynamic[t-Dynamic(0)]
	}
	return t.URL()
}

// dynamicTypes yields the dynamic types that were requested.
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

// InFlightResource reports whether an unacknowledged response of a dynamic type carries a resource. Stock agents do not
// acknowledge others.
func (s *State) InFlightResource(t xds.Type) bool {
	d := s.dynamicOf(t)
	return d != nil && slices.ContainsFunc(d.flights, func(f flight) bool { return len(f.set) > 0 })
}

// Refused returns the last version of a dynamic type that the client refused, or the empty string if it has accepted
// another one or requested the type again since.
func (s *State) Refused(t xds.Type) string {
	if d := s.dynamicOf(t); d != nil {
		return d.refused
	}
	return ""
}

// subscribeAll processes a wildcard after the first request.
func (d *dynamic) subscribeAll() {
	if d.fresh { // its names are answered with all others
		d.fresh = false
		for _, name := range d.names.All() {
			d.put(name, override{force: true})
		}
	}
	for r := range d.sent.All() {
		if _, is := d.overrides[r.Name]; !is && !d.wants(r.Name) {
			d.put(r.Name, override{}) // it was not requested before
		}
	}
	d.all = true
}

// unsubscribeDynamic drops names, or the wildcard, and the state of names that are no longer requested.
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

// refuseDynamic processes the refusal of a response.
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

// refusedNewest reports whether the client refused the present resource. It then keeps its previous one, even under
// another name.
func (d *dynamic) refusedNewest() bool {
	for r := range d.target.All() {
		return d.wants(r.Name) && r.Version == d.refused
	}
	return false
}

// absentDynamic is absent for dynamic types.
func (s *State) absentDynamic(t xds.Type, o override, holds bool) verb {
	switch {
	case holds && !o.force && s.dynamicOf(t).refusedNewest():
		return hold
	case holds, o.force && !s.cfg.SotW:
		return remove
	}
	return hold
}
