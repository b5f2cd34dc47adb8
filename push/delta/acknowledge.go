package delta

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"navarch.io/navarch/push/xds"
)

// Kind is the kind of event that a Report describes.
type Kind uint8

// The kinds of events.
const (
	Acked   Kind = iota // the client accepted a response
	Nacked              // the client refused a resource or, if Name is empty, a response
	Expired             // the request's nonce belongs to no response in flight
)

// Report is an event that the caller may count, log or act on. A NACK makes one Report for each resource that is known
// to be refused and is still subscribed. If there is no such resource, a NACK makes one Report without a Name.
type Report struct {
	Kind     Kind
	Type     xds.Type
	Nonce    string // nonce of the request, cut to 64 bytes
	Revision int64  // the store's revision from which the response was made; 0 for Expired
	Name     string // Nacked: the refused resource; empty: not known
	Version  string // Nacked: the refused version
	Good     string // Nacked: the last good version, which stays in effect; empty: none
	Text     string // Nacked: Envoy's message, at most 512 bytes, without content of secrets
}

// maxText is the maximum length in bytes of Report.Text. Envoy's message may contain the whole resource.
const maxText = 512

// acknowledge processes a request with a nonce, as an ACK or NACK of a response. It appends reports to out.
func (s *State) acknowledge(r Request, out []Report) []Report {
	ty := s.typed(r.Type)
	nonce, err := strconv.ParseUint(r.Nonce, 10, 64)
	i := slices.IndexFunc(ty.flights, func(f flight) bool { return f.nonce == nonce })
	if err != nil || i < 0 {
		return append(out, Report{Kind: Expired, Type: r.Type, Nonce: strings.Clone(r.Nonce[:min(len(r.Nonce), maxNonce)])})
	}
	f := s.take(r.Type, i)
	s.answered = max(s.answered, nonce)
	if r.Type == xds.Cluster {
		defer s.arrives()
	}
	switch {
	case r.Failed && isDynamic(r.Type):
		return s.refuseDynamic(r, f, out)
	// In the state-of-the-world protocol, a request with the version of this response accepts the response. An error in
	// such a request is about an older response.
	case r.Failed && (f.version == "" || r.Version != f.version):
		return s.refuse(r, f, out)
	}
	ty.accept(f)
	if r.Type == xds.Cluster {
		s.comesBack(f.set)
	}
	if d := s.dynamicOf(r.Type); d != nil && len(f.set) > 0 {
		d.refused = "" // the client has accepted another version
	}
	return append(out, Report{Kind: Acked, Type: r.Type, Nonce: nonceText(nonce), Revision: f.revision})
}

// take removes the response with index i from the responses in flight of a type, and returns it. A state-of-the-world
// client answers only the newest response that it has read. Therefore older responses are removed too, and their
// content is added to the result.
func (s *State) take(t xds.Type, i int) flight {
	ty := s.typed(t)
	f, first := ty.flights[i], i
	if s.cfg.SotW && !isDynamic(t) {
		for first > 0 {
			first--
			ty.absorb(&f, ty.flights[first])
		}
	}
	for _, done := range ty.flights[first : i+1] {
		s.unacked -= done.size
	}
	if ty.flights = slices.Delete(ty.flights, first, i+1); len(ty.flights) == 0 {
		ty.flights = nil
	} else if next := &ty.flights[0]; next.whole {
		done := f
		done.removed = nil
		ty.absorb(next, done)
	}
	return f
}

// carriesOn records that a newer response in flight also contains the resources of an older response. The arguments
// are their nonces.
func (ty *typed) carriesOn(newer, older uint64) {
	for name, o := range ty.overrides {
		if o.flying == older && o.now != nil {
			o.flying = newer
			ty.put(name, o)
		}
	}
}

// absorb adds the content of an older response to the newer response f. If both contain a name, f has priority.
func (ty *typed) absorb(f *flight, older flight) {
	carries := func(name string) bool {
		_, sets := slices.BinarySearchFunc(f.set, name, byName)
		return sets || found(f.removed, name)
	}
	passes := func(name string) {
		if o, is := ty.overrides[name]; is && o.flying == older.nonce {
			o.flying = f.nonce
			ty.put(name, o)
		}
	}
	set, removed := slices.Clone(f.set), slices.Clone(f.removed)
	for _, r := range older.set {
		if passes(r.Name); !carries(r.Name) {
			set = append(set, r)
		}
	}
	for _, name := range older.removed {
		if passes(name); !carries(name) {
			removed = append(removed, name)
		}
	}
	slices.SortFunc(set, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(removed)
	f.set, f.removed = set, removed
}

// later finds the newest response in flight that contains a name and has a nonce above the given one. It returns the
// response's nonce and the resource, which is nil for a removal. If there is no such response, the nonce is 0.
func (ty *typed) later(above uint64, name string) (nonce uint64, r *xds.Resource) {
	for i := len(ty.flights) - 1; i >= 0; i-- {
		f := &ty.flights[i]
		newest := f.nonce
		if f.whole {
			newest = ty.flights[len(ty.flights)-1].nonce
		}
		at, sets := slices.BinarySearchFunc(f.set, name, byName)
		switch {
		case newest <= above:
			return 0, nil
		case sets:
			return newest, f.set[at]
		case found(f.removed, name) && f.nonce > above:
			return f.nonce, nil
		case found(f.removed, name):
			return 0, nil
		}
	}
	return 0, nil
}

// settles updates the acknowledged resources (ty.acked) after an answer to the response f. If a newer response was
// answered before, they do not change.
func (ty *typed) settles(f flight) {
	if f.nonce > ty.settled {
		ty.acked, ty.ackedRevision, ty.settled = f.at, f.revision, f.nonce
	}
}

// accept records that the client has the content of a response.
func (ty *typed) accept(f flight) {
	ty.settles(f)
	ty.ackedNonce = max(ty.ackedNonce, f.nonce)
	if len(ty.overrides) == 0 {
		ty.overrides = nil
		return
	}
	answered := func(name string, carried *xds.Resource) {
		o, is := ty.overrides[name]
		if !is {
			return
		}
		if o.flying == f.nonce {
			o.flying, o.now = 0, nil
		}
		if o.lacks != "" && carried != nil && carried.Version == o.refused { // fallBack replaces this version later
			ty.put(name, o)
			return
		}
		if o.refused != "" && (carried == nil || !same(carried, o.have)) && !carried.StandsIn() {
			o.refused, o.lacks = "", ""
		}
		o.have, o.held, o.claimed, o.maybe = carried, false, false, nil
		ty.tidy(name, o)
	}
	for _, r := range f.set {
		answered(r.Name, r)
	}
	for _, name := range f.removed {
		answered(name, nil)
	}
	if ty.acked == ty.sent {
		ty.tidyAll()
	}
}
