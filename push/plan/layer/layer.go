// Package layer stores the planned resources of one layer of a view. A view is the configuration of a group of proxies.
// Its layers, such as the outbound and the inbound side, are shared by different groups. A Layer has a manifest (an
// immutable set of resources) for each type, and edits that Commit moves into the manifests. The package also has Table
// and Sharing, with which parts of the plan share memory with their copies.
//
// Owns: nothing, since a Layer belongs to the part of the plan that fills it. Reads: push/manifest. Never: reads a
// snapshot or a rule of the configuration.
package layer

import (
	"maps"

	"github.com/cespare/xxhash/v2"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
)

// Unit is one resource with its Spec. The Spec contains all inputs of the build. A Unit is comparable. The zero Unit
// has no resource.
type Unit struct {
	Spec pool.ResourceSpec
	Res  *xds.Resource
}

// Layer contains the manifests of one layer, and the edits since the last Commit. The zero Layer is empty. A Layer is
// not safe for concurrent use. Its manifests are immutable.
type Layer struct {
	types [xds.NumTypes]*manifest.Manifest
	puts  [xds.NumTypes]map[string]*xds.Resource // by name; a nil value removes the name
	specs map[xds.Ref]pool.ResourceSpec          // of the units that Add stored
	// reserved contains the names of resources that EnvoyFilters add. They take precedence over planned resources.
	reserved map[xds.Ref]bool
}

// Fork returns a copy. Later edits of the copy do not affect the original layer, nor the reverse. Fork must not be
// called between an edit and the next Commit. The copy and the original share the reserved names, so Reserve must not
// be called after Fork.
func (l *Layer) Fork() *Layer {
	next := *l
	next.specs = maps.Clone(l.specs)
	return &next
}

// Manifest returns the layer's manifest of a type after the last Commit. It may be nil if it has no resources.
func (l *Layer) Manifest(t xds.Type) *manifest.Manifest { return l.types[t] }

// Add stores a unit with its Spec, in place of a resource with the same type and name. It ignores reservations. The
// Unit u must have a resource.
func (l *Layer) Add(u Unit) {
	if l.specs == nil {
		l.specs = map[xds.Ref]pool.ResourceSpec{}
	}
	l.specs[ref(u.Res)] = u.Spec
	l.set(u.Res.Type, u.Res.Name, u.Res)
}

// Reserve stores a unit that an EnvoyFilter adds, and reserves its type and name. Later calls of Put, Drop and Replace
// ignore resources with this type and name.
func (l *Layer) Reserve(u Unit) {
	if l.reserved == nil {
		l.reserved = map[xds.Ref]bool{}
	}
	l.reserved[ref(u.Res)] = true
	l.Add(u)
}

// Reserved reports whether the type and name of a resource are reserved.
func (l *Layer) Reserved(r *xds.Resource) bool { return l.reserved[ref(r)] }

// Spec returns the Spec of a unit that Add or Reserve stored. It returns nil for other resources and for removed units.
func (l *Layer) Spec(r xds.Ref) pool.ResourceSpec { return l.specs[r] }

// Specs calls f with the Spec of each unit that Add or Reserve stored, in any order. Removed units do not count.
func (l *Layer) Specs(f func(pool.ResourceSpec)) {
	for _, spec := range l.specs {
		f(spec)
	}
}

// Remove removes a resource with its Spec. It has no effect for an absent resource, and ignores reservations.
func (l *Layer) Remove(t xds.Type, name string) {
	delete(l.specs, xds.Ref{Type: t, Name: name})
	l.set(t, name, nil)
}

// Retain removes all resources of a type that Add or Reserve stored, except the given names.
func (l *Layer) Retain(t xds.Type, names map[string]bool) {
	for r := range l.specs {
		if r.Type == t && !names[r.Name] {
			l.Remove(t, r.Name)
		}
	}
}

// Hide stores a marker that hides the resource with a type and name in the layers below this layer.
func (l *Layer) Hide(t xds.Type, name string) {
	marker := l.types[t].Get(name)
	if !manifest.IsHidden(marker) {
		marker = manifest.Hidden(t, name)
	}
	l.set(t, name, marker)
}

// Put stores a resource, unless it is nil or its name is reserved.
func (l *Layer) Put(r *xds.Resource) {
	if r != nil && !l.Reserved(r) {
		l.set(r.Type, r.Name, r)
	}
}

// Drop removes a resource, unless it is nil or its name is reserved.
func (l *Layer) Drop(r *xds.Resource) {
	if r != nil && !l.Reserved(r) {
		l.set(r.Type, r.Name, nil)
	}
}

// Replace removes the resources of the old units and stores the resources of the new units, by Drop and Put. Resources
// with equal pointers stay unchanged. All units must have a resource, and all resources the same type. Names must be
// unique within each list.
func (l *Layer) Replace(old, now []Unit) {
	for len(old) > 0 && len(now) > 0 && old[0].Res == now[0].Res { // most calls change no unit
		old, now = old[1:], now[1:]
	}
	was, is := ByName(old), ByName(now)
	for _, u := range old {
		if is[u.Res.Name].Res == nil {
			l.Drop(u.Res)
		}
	}
	for _, u := range now {
		if was[u.Res.Name].Res != u.Res {
			l.Put(u.Res)
		}
	}
}

// ByName maps the names of resources to their units. All units must have a resource, and names must be unique. The
// result is nil for an empty list.
func ByName(units []Unit) map[string]Unit {
	if len(units) == 0 {
		return nil
	}
	all := make(map[string]Unit, len(units))
	for _, u := range units {
		all[u.Res.Name] = u
	}
	return all
}

func ref(r *xds.Resource) xds.Ref { return xds.Ref{Type: r.Type, Name: r.Name} }

// set records a new version of a resource for the next Commit. A nil version removes the resource.
func (l *Layer) set(t xds.Type, name string, r *xds.Resource) {
	if l.puts[t] == nil {
		l.puts[t] = map[string]*xds.Resource{}
	}
	l.puts[t][name] = r
}

// piece is the number of edits, or names, between two calls of yield.
const piece = 1000

// Commit moves the edits into the manifests. It copies only the hash buckets of the manifests that differ. It calls the
// function yield between two pieces of the work. The manifests may be incomplete during these calls, so yield must not
// read the layer. Layers with equal manifests and edits share the results through the Sharing x, which may be nil.
func (l *Layer) Commit(x *Sharing, yield func()) {
	for t, puts := range l.puts {
		for i, names := range inPieces(puts, yield) {
			if i > 0 {
				yield()
			}
			l.commit(xds.Type(t), names, x)
		}
		l.puts[t] = nil
	}
}

// inPieces partitions the names of edits by their hashes. Equal sets of names have equal parts in all layers.
func inPieces(puts map[string]*xds.Resource, yield func()) [][]string {
	parts := make([][]string, (len(puts)+piece-1)/piece)
	seen := 0
	for name := range puts {
		part := 0
		if len(parts) > 1 {
			part = int(xxhash.Sum64String(name) % uint64(len(parts)))
		}
		parts[part] = append(parts[part], name)
		if seen++; seen%(8*piece) == 0 {
			yield()
		}
	}
	return parts
}

// commit moves the edits with the given names into the manifest of a type.
func (l *Layer) commit(t xds.Type, names []string, x *Sharing) {
	var changed []*xds.Resource
	var gone []string
	for _, name := range names {
		switch r, have := l.puts[t][name], l.types[t].Get(name); {
		case r == nil && have != nil:
			gone = append(gone, name)
		case r != have:
			changed = append(changed, r)
		}
	}
	if len(changed)+len(gone) > 0 {
		l.types[t] = x.with(l.types[t], changed, gone)
	}
}

// Succeed makes this layer share all equal parts of its manifests with the layer old that it replaces. The content of
// this layer stays unchanged, and must be committed. Succeed calls yield and uses x as Commit does. Succeed does not
// change old, but yield may change old.
func (l *Layer) Succeed(old *Layer, x *Sharing, yield func()) {
	for t, was := range old.types { // old.types is an array, so this iterates over a copy
		seen := 0
		count := func() {
			if seen++; seen%piece == 0 {
				yield()
			}
		}
		for r := range l.types[t].All() {
			if count(); was.Get(r.Name) != r {
				l.set(xds.Type(t), r.Name, r)
			}
		}
		for r := range was.All() {
			if count(); l.types[t].Get(r.Name) == nil {
				l.set(xds.Type(t), r.Name, nil)
			}
		}
		l.types[t] = was
	}
	l.Commit(x, yield)
}
