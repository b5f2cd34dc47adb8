// Package layer keeps what was planned for one layer of a view: its manifests, the edits that are not in them yet, and tables that
// scopes share with their clones.
//
// Owns: nothing; a Layer belongs to the part of the plan that fills it.  Reads: push/manifest.  Never: a snapshot, a rule.
package layer

import (
	"maps"
	"slices"

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

// Replace puts one list of units in the place of another; both are short.
func (l *Layer) Replace(old, now []Unit) {
	for _, was := range old {
		if !slices.ContainsFunc(now, func(u Unit) bool { return u.Res.Name == was.Res.Name }) {
			l.Drop(was.Res)
		}
	}
	for _, u := range now {
		if !slices.ContainsFunc(old, func(was Unit) bool { return u.Res == was.Res }) {
			l.Put(u.Res)
		}
	}
}

func ref(r *xds.Resource) xds.Ref { return xds.Ref{Type: r.Type, Name: r.Name} }

func (l *Layer) set(t xds.Type, name string, r *xds.Resource) {
	if l.puts[t] == nil {
		l.puts[t] = map[string]*xds.Resource{}
	}
	l.puts[t][name] = r
}

// Edits counts the edits that are not in the manifests yet.
func (l *Layer) Edits() (n int) {
	for _, puts := range l.puts {
		n += len(puts)
	}
	return n
}

// Commit moves the edits into the manifests; only buckets that differ are copied.
func (l *Layer) Commit(x *Sharing) {
	for t, puts := range l.puts {
		var changed []*xds.Resource
		var gone []string
		for name, r := range puts {
			switch have := l.types[t].Get(name); {
			case r == nil && have != nil:
				gone = append(gone, name)
			case r != have:
				changed = append(changed, r)
			}
		}
		if len(changed)+len(gone) > 0 {
			l.types[t] = x.with(l.types[t], changed, gone)
		}
		l.puts[t] = nil
	}
}

// Succeed makes this layer, planned from scratch, share what it has in common with the one it replaces.
func (l *Layer) Succeed(old *Layer, x *Sharing) {
	for t := range l.types {
		var changed []*xds.Resource
		var gone []string
		for r := range l.types[t].All() {
			if old.types[t].Get(r.Name) != r {
				changed = append(changed, r)
			}
		}
		for r := range old.types[t].All() {
			if l.types[t].Get(r.Name) == nil {
				gone = append(gone, r.Name)
			}
		}
		if len(changed)+len(gone) == 0 {
			l.types[t] = old.types[t]
		} else {
			l.types[t] = x.with(old.types[t], changed, gone)
		}
	}
}
