package delta

import (
	"slices"
	"strconv"
	"strings"

	"navarch.io/navarch/push/xds"
)

// Kind is what a Report says.
type Kind uint8

const (
	Acked   Kind = iota // a response was accepted
	Nacked              // a resource was refused; Name is empty while it is not known which
	Expired             // a nonce that is not in flight
)

// Report is what the caller may want to count, log or act on.
type Report struct {
	Kind     Kind
	Type     xds.Type
	Nonce    string
	Revision int64  // of the store, that the response was made of
	Name     string // the culprit
	Version  string // the refused one
	Good     string // the last good version, which stands; empty where there is none
	Text     string // Envoy's words, cut
}

// maxText is how much of Envoy's words is kept, bytes: it may print the whole resource.
const maxText = 512

// acknowledge takes a request as the answer to a response.
func (s *State) acknowledge(r Request, out []Report) []Report {
	ty := s.typed(r.Type)
	nonce, err := strconv.ParseUint(r.Nonce, 10, 64)
	i := slices.IndexFunc(ty.flights, func(f flight) bool { return f.nonce == nonce })
	if err != nil || i < 0 {
		return append(out, Report{Kind: Expired, Type: r.Type, Nonce: strings.Clone(r.Nonce[:min(len(r.Nonce), maxNonce)])})
	}
	f := ty.flights[i]
	if ty.flights = slices.Delete(ty.flights, i, i+1); len(ty.flights) == 0 {
		ty.flights = nil
	}
	s.unacked -= f.size
	switch {
	case r.Failed && isDynamic(r.Type):
		return s.refuseDynamic(r, f, out)
	case r.Failed:
		return s.refuse(r, f, out)
	}
	ty.accept(f)
	if d := s.dynamicOf(r.Type); d != nil && len(f.set) > 0 {
		d.refused = "" // it has taken another version
	}
	return append(out, Report{Kind: Acked, Type: r.Type, Nonce: nonceText(nonce), Revision: f.revision})
}

// accept makes what was sent what is held.
func (ty *typed) accept(f flight) {
	ty.acked, ty.ackedNonce, ty.ackedRevision = f.at, f.nonce, f.revision
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
		if o.refused != "" && (carried == nil || !same(carried, o.have)) && !carried.StandsIn() {
			o.refused = ""
		}
		o.have, o.held, o.claimed = carried, false, false
		ty.tidy(name, o)
	}
	for _, r := range f.set {
		answered(r.Name, r)
	}
	for _, name := range f.removed {
		answered(name, nil)
	}
}
