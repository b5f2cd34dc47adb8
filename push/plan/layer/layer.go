// Package layer stores the planned resources of one layer of a View: its manifests, the edits that are not in them yet,
// and tables that scopes share with their clones.
//
// Owns: nothing; a Layer belongs to the part of the plan that fills it.  Reads: push/manifest.  Never: a snapshot, a
// rule.
package layer

import (
	"maps"

	"github.com/cespare/xxhash/v2"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
)

// Unit is one resource: its Spec, which contains all inputs, and the built resource. Comparable. The zero Unit stands
// for no resource.
type Unit struct {
	Spec pool.ResourceSpec
	Res  *xds.Resource
}

// Layer contains the manifests of one layer, and the edits that are not in them yet.
type Layer struct {
	types [xds.NumTypes]*manifest.Manifest
	puts  [xds.NumTypes]map[string]*xds.Resource // by name; a nil value removes the name
	specs map[xds.Ref]pool.ResourceSpec          // of the units that Add stored
	// reserved contains the names of resources that EnvoyFilters add. They take precedence over planned resources.
	reserved map[xds.Ref]bool
}

// Fork returns an independent copy. It must not be called within a step.
func (l *Layer) Fork() *Layer {
	next := *l
	next.specs = maps.Clone(l.specs)
	return &next
}

// Manifest returns the layer's manifest of a type as of the last Commit, or nil if it is empty.
func (l *Layer) Manifest(t xds.Type) *manifest.Manifest { return l.types[t] }

// Add stores a unit with its Spec, and replaces one of the same name.
func (l *Layer) Add(u Unit) {
	if l.specs == nil {
		l.specs = map[xds.Ref]pool.ResourceSpec{}
	}
	l.specs[ref(u.Res)] = u.Spec
	l.set(u.Res.Type, u.Res.Name, u.Res)
}

// Reserve stores a unit that an EnvoyFilter adds. From now on Put and Drop ignore its name.
func (l *Layer) Reserve(u Unit) {
	if l.reserved == nil {
		l.reserved = map[xds.Ref]bool{}
	}
	l.reserved[ref(u.Res)] = true
	l.Add(u)
}

// Reserved reports whether the name of a resource is reserved.
func (l *Layer) Reserved(r *xds.Resource) bool { return l.reserved[ref(r)] }

// Spec returns the Spec of a unit that Add or Reserve stored, or nil for another name.
func (l *Layer) Spec(r xds.Ref) pool.ResourceSpec { return l.specs[r] }

// Specs calls f with the Spec of each unit that Add or Reserve stored.
func (l *Layer) Specs(f func(pool.ResourceSpec)) {
	for _, spec := range l.specs {
		f(spec)
	}
}

// Remove removes a resource that Add stored.
func (l *Layer) Remove(t xds.Type, name string) {
	delete(l.specs, xds.Ref{Type: t, Name: name})
	l.set(t, name, nil)
}

// Retain removes all resources of a type that Add stored, except the given names.
func (l *Layer) Retain(t xds.Type, names map[string]bool) {
	for r := range l.specs {
		if r.Type == t && !names[r.Name] {
			l.Remove(t, r.Name)
		}
	}
}

// Hide hides the lower layers' resource of a name.
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

// Replace replaces one list of units by another. Within each list names must be unique.
func (l *Layer) Replace(old, now []Unit) {
	for len(old) > 0 && len(now) > 0 && old[0].Res == now[0].Res { // mostly all units are unchanged
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

// ByName maps the names of resources to their units, which must be of one type. It returns nil for an empty list.
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

// set records the change of a resource for the next manifest; nil removes it.
func (l *Layer) set(t xds.Type, name string, r *xds.Resource) {
	if l.puts[t] == nil {
		l.puts[t] = map[string]*xds.Resource{}
	}
	l.puts[t][name] = r
}

// piece is the number of edits, or names, between two calls of yield.
const piece = 1000

// Commit moves the edits into the manifests and copies only the buckets that differ. It calls yield between two pieces
// of the work. Meanwhile the manifests may be incomplete, so only layers that no reader uses yet may be committed in
// pieces. A nil x shares nothing.
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

// inPieces partitions the names of edits by their hashes, so that equal sets of names in any layers have equal parts.
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

// commit moves the edits of the given names of a type into the type's manifest.
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

// Succeed makes this layer, which was planned from scratch, share all equal parts with the layer that it replaces. It
// calls yield as Commit does. The old layer may change meanwhile.
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
