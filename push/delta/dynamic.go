package delta

import (
	"iter"
	"slices"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// Types that a server has beside Envoy's are dynamic: agents ask for them on the stream that they carry for Envoy. They follow the rules of
// the protocol like all others; what is different about them:
//   - a client has one resource of such a type, or none, and the newest is an event of its own (Offer);
//   - a first request without names asks for whatever there is, and one with names for these; both may be changed later;
//   - nothing depends on them: they are sent before all else, within the credit;
//   - a client takes all of a response or nothing: what it refuses leaves it with what it had. A version that it refused is not sent again
//     until it takes another one, or asks again;
//   - where there is nothing, a stream of state of the world gets no answer, as stock agents expect.

// MaxDynamic is how many dynamic types there may be.
const MaxDynamic = 8

// Bounds of what a client can make a stream keep of a dynamic type.
const (
	maxDynamicNames = 64  // names that are asked for
	maxDynamicName  = 256 // bytes of one
)

// Dynamic is the type of Config.Dynamic[i].
func Dynamic(i int) xds.Type { return xds.Unknown + 1 + xds.Type(i) }

func isDynamic(t xds.Type) bool { return t > xds.Unknown }

// dynamic is the state of a dynamic type.
type dynamic struct {
	typed
	target  manifest.Stack
	refused string // the version that the client refused last, and is not sent again
}

// Offer is the event that a client has another resource of a dynamic type: what is in the stack, which is one, or nothing. Streams that
// did not ask for the type ignore it.
func (s *State) Offer(t xds.Type, resource manifest.Stack) {
	if d := s.dynamicOf(t); d != nil {
		d.target = resource
	}
}

// Open is the event that a dynamic type is about to be asked for: from here on Offer counts. False: there is no such type.
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

// dynamicOf is the state of a dynamic type; nil: it is none, or was never asked for.
func (s *State) dynamicOf(t xds.Type) *dynamic {
	if i := int(t) - int(Dynamic(0)); s.dynamic != nil && i >= 0 && i < MaxDynamic {
		return s.dynamic[i]
	}
	return nil
}

func (s *State) url(t xds.Type) string {
	if isDynamic(t) {
		return s.cfg.Dynamic[t-Dynamic(0)]
	}
	return t.URL()
}

// dynamicTypes are the dynamic types that were asked for.
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

// InFlightResource says whether a response of a dynamic type is unacknowledged that carries a resource. Stock agents do not acknowledge
// others.
func (s *State) InFlightResource(t xds.Type) bool {
	d := s.dynamicOf(t)
	return d != nil && slices.ContainsFunc(d.flights, func(f flight) bool { return len(f.set) > 0 })
}

// Refused is the version of a dynamic type that the client refused last, unless it took another one or asked again since; empty: none.
func (s *State) Refused(t xds.Type) string {
	if d := s.dynamicOf(t); d != nil {
		return d.refused
	}
	return ""
}

// subscribeAll is a wildcard that comes after the first request.
func (d *dynamic) subscribeAll() {
	if d.fresh { // its names are answered with all else
		d.fresh = false
		for _, name := range d.names.All() {
			d.put(name, override{force: true})
		}
	}
	for r := range d.sent.All() {
		if _, is := d.overrides[r.Name]; !is && !d.wants(r.Name) {
			d.put(r.Name, override{}) // it was passed over
		}
	}
	d.all = true
}

// unsubscribeDynamic drops names, or the wildcard, and what is known of what is not asked for any more.
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

// refuseDynamic handles a response that was refused.
func (s *State) refuseDynamic(r Request, f flight, out []Report) []Report {
	d := s.dynamicOf(r.Type)
	before := d.acked
	d.acked, d.ackedRevision = f.at, f.revision
	report := Report{Kind: Nacked, Type: r.Type, Nonce: nonceText(f.nonce), Revision: f.revision, Text: excerpt(r.Type, r.Error)}
	if len(f.set) == 0 { // there is nothing in a removal to refuse
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

// refusedNewest says whether the client refused the resource that there is: then it keeps what it has, also under another name.
func (d *dynamic) refusedNewest() bool {
	for r := range d.target.All() {
		return d.wants(r.Name) && r.Version == d.refused
	}
	return false
}

// absentDynamic is what has to be sent about a name that there is no resource of.
func (s *State) absentDynamic(t xds.Type, o override, holds bool) verb {
	switch {
	case holds && !o.force && s.dynamicOf(t).refusedNewest():
		return hold
	case holds, o.force && !s.cfg.SotW:
		return remove
	}
	return hold
}
