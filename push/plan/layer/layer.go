// Package layer keeps what was planned for one layer of a view: its manifests, the edits that are not in them yet, and tables that
// scopes share with their clones.
//
// Owns: nothing; a Layer belongs to the part of the plan that fills it.  Reads: push/manifest.  Never: a snapshot, a rule.
package layer

import (
	"maps"

	"github.com/cespare/xxhash/v2"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
)

// Unit is one resource: the Spec that says all it depends on, and what was built of it. Comparable. The zero Unit: there is none.
type Unit struct {
	Spec pool.ResourceSpec
	Res  *xds.Resource
}

// Layer is the manifests of one layer, and the edits that are not in them yet.
type Layer struct {
	types [xds.NumTypes]*manifest.Manifest
	puts  [xds.NumTypes]map[string]*xds.Resource // nil value: removed
	specs map[xds.Ref]pool.ResourceSpec          // of what was added with Add
	// reserved are names that an EnvoyFilter's ADD has: what would be planned under them gives way.
	reserved map[xds.Ref]bool
}

// Fork is a copy; what is put into one is not in the other. Between steps only.
func (l *Layer) Fork() *Layer {
	next := *l
	next.specs = maps.Clone(l.specs)
	return &next
}

// Manifest is what the layer has of a type, up to the last Commit.
func (l *Layer) Manifest(t xds.Type) *manifest.Manifest { return l.types[t] }

// Add puts a unit, and remembers its Spec.
func (l *Layer) Add(u Unit) {
	if l.specs == nil {
		l.specs = map[xds.Ref]pool.ResourceSpec{}
	}
	l.specs[ref(u.Res)] = u.Spec
	l.set(u.Res.Type, u.Res.Name, u.Res)
}

// Reserve is Add for what an EnvoyFilter adds: from now on Put and Drop leave the name alone.
func (l *Layer) Reserve(u Unit) {
	if l.reserved == nil {
		l.reserved = map[xds.Ref]bool{}
	}
	l.reserved[ref(u.Res)] = true
	l.Add(u)
}

// Reserved says whether the name of a resource is reserved.
func (l *Layer) Reserved(r *xds.Resource) bool { return l.reserved[ref(r)] }

// Spec is that of a resource that was put with Add; nil: there is none of this name.
func (l *Layer) Spec(r xds.Ref) pool.ResourceSpec { return l.specs[r] }

// Specs calls f with the Specs of all that was put with Add.
func (l *Layer) Specs(f func(pool.ResourceSpec)) {
	for _, spec := range l.specs {
		f(spec)
	}
}

// Remove takes out what was put with Add.
func (l *Layer) Remove(t xds.Type, name string) {
	delete(l.specs, xds.Ref{Type: t, Name: name})
	l.set(t, name, nil)
}

// Retain takes out what was put with Add of a type, but for these names.
func (l *Layer) Retain(t xds.Type, names map[string]bool) {
	for r := range l.specs {
		if r.Type == t && !names[r.Name] {
			l.Remove(t, r.Name)
		}
	}
}

// Hide hides what a lower layer has under a name.
func (l *Layer) Hide(t xds.Type, name string) {
	marker := l.types[t].Get(name)
	if !manifest.IsHidden(marker) {
		marker = manifest.Hidden(t, name)
	}
	l.set(t, name, marker)
}

// Put puts a resource, unless its name is reserved; nil is nothing.
func (l *Layer) Put(r *xds.Resource) {
	if r != nil && !l.Reserved(r) {
		l.set(r.Type, r.Name, r)
	}
}

// Drop takes a resource out, unless its name is reserved; nil is nothing.
func (l *Layer) Drop(r *xds.Resource) {
	if r != nil && !l.Reserved(r) {
		l.set(r.Type, r.Name, nil)
	}
}

// Replace puts one list of units in the place of another. Each has one unit of a name.
func (l *Layer) Replace(old, now []Unit) {
	for len(old) > 0 && len(now) > 0 && old[0].Res == now[0].Res { // mostly all are as they were
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

// ByName has units of one type by the names of their resources; nil for none.
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

func (l *Layer) set(t xds.Type, name string, r *xds.Resource) {
	if l.puts[t] == nil {
		l.puts[t] = map[string]*xds.Resource{}
	}
	l.puts[t][name] = r
}

// piece counts the edits, or names, between two rests.
const piece = 1000

// Commit moves the edits into the manifests; only buckets that differ are copied. rest is called between two pieces of
// that: the manifests of a layer that nobody else sees yet may be incomplete meanwhile.
func (l *Layer) Commit(x *Sharing, rest func()) {
	for t, puts := range l.puts {
		for i, names := range inPieces(puts, rest) {
			if i > 0 {
				rest()
			}
			l.commit(xds.Type(t), names, x)
		}
		l.puts[t] = nil
	}
}

// inPieces divides the names of edits by their hashes: equal sets of names, of whatever layers, are divided alike.
func inPieces(puts map[string]*xds.Resource, rest func()) [][]string {
	parts := make([][]string, (len(puts)+piece-1)/piece)
	seen := 0
	for name := range puts {
		part := 0
		if len(parts) > 1 {
			part = int(xxhash.Sum64String(name) % uint64(len(parts)))
		}
		parts[part] = append(parts[part], name)
		if seen++; seen%(8*piece) == 0 {
			rest()
		}
	}
	return parts
}

// commit moves the edits of some names of a type into its manifest.
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

// Succeed makes this layer, planned from scratch, share what it has in common with the one it replaces. Commit says
// when rest is called. The old layer may change meanwhile.
func (l *Layer) Succeed(old *Layer, x *Sharing, rest func()) {
	for t, was := range old.types { // a copy
		seen := 0
		count := func() {
			if seen++; seen%piece == 0 {
				rest()
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
	l.Commit(x, rest)
}
