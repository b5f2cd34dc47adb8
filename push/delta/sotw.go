package delta

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"navarch.io/navarch/push/xds"
)

// asSotW converts a delta response to its state-of-the-world form. A response of clusters, listeners or a dynamic type
// (a type other than Envoy's) contains all requested resources. The client removes all other resources. A response of
// another type contains only changes, and cannot remove a resource. If there is nothing to send, asSotW returns false
// and the response counts as accepted.
func (s *State) asSotW(r *Reply) bool {
	ty := s.typed(r.Type)
	f := &ty.flights[len(ty.flights)-1]
	r.Removed = nil
	if r.Type.Wildcard() || isDynamic(r.Type) {
		r.Set = ty.holding()
	} else if len(r.Set) == 0 {
		done := *f
		ty.flights = ty.flights[:len(ty.flights)-1]
		ty.accept(done)
		return false
	}
	if len(r.Set) > 0 || !isDynamic(r.Type) {
		r.Version = setVersion(r.Set)
	}
	r.Size = overhead(r)
	for _, res := range r.Set {
		r.Size += res.WireSize()
	}
	f.size, f.kept, f.version = r.Size, overhead(r), r.Version
	for _, res := range f.set {
		f.kept += res.WireSize()
	}
	if f.whole = r.Type.Wildcard(); f.whole && len(ty.flights) > 1 {
		ty.carriesOn(f.nonce, ty.flights[len(ty.flights)-2].nonce)
	}
	s.unacked += f.size
	return true
}

// holding returns the client's resources, sorted by name. Responses in flight count as accepted.
func (ty *typed) holding() []*xds.Resource {
	if !ty.subscribed {
		return nil
	}
	most := ty.names.Len()
	if ty.all {
		most = ty.sent.Len()
	}
	all := make([]*xds.Resource, 0, most+len(ty.overrides))
	add := func(r *xds.Resource) {
		if r == nil {
			return
		}
		if _, is := ty.overrides[r.Name]; !is {
			all = append(all, r)
		}
	}
	if ty.all {
		for r := range ty.sent.All() {
			add(r)
		}
	} else {
		for _, name := range ty.names.All() {
			add(ty.sent.Get(name))
		}
	}
	for _, o := range ty.overrides {
		if has := o.has(); has != nil {
			all = append(all, has)
		}
	}
	slices.SortFunc(all, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// setVersion returns a hash of the names and versions of sorted resources. It is equal on every replica.
func setVersion(sorted []*xds.Resource) string {
	h := sha256.New()
	var text []byte
	for _, r := range sorted {
		text = append(append(append(text[:0], r.Name...), 0), r.Version...)
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Holding returns the client's resources of a type, sorted by name. If the client does not subscribe to the type, the
// result is nil. Responses in flight count as accepted. Resources whose version is unknown are left out. The slice
// belongs to the caller. The resources are read-only.
func (s *State) Holding(t xds.Type) []*xds.Resource {
	if ty := s.typed(t); ty != nil {
		return ty.holding()
	}
	return nil
}
