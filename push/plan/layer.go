package plan

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
)

// layer is the manifests of one layer, and the edits that are not in them yet.
type layer struct {
	types [xds.NumTypes]*manifest.Manifest
	puts  [xds.NumTypes]map[string]*xds.Resource // nil value: removed
	specs map[xds.Ref]pool.ResourceSpec          // of what was added with add
}

// add puts a unit, and remembers its Spec.
func (l *layer) add(u unit) {
	if l.specs == nil {
		l.specs = map[xds.Ref]pool.ResourceSpec{}
	}
	l.specs[xds.Ref{Type: u.res.Type, Name: u.res.Name}] = u.spec
	l.set(u.res.Type, u.res.Name, u.res)
}

func (l *layer) remove(t xds.Type, name string) {
	delete(l.specs, xds.Ref{Type: t, Name: name})
	l.set(t, name, nil)
}

func (l *layer) set(t xds.Type, name string, r *xds.Resource) {
	if l.puts[t] == nil {
		l.puts[t] = map[string]*xds.Resource{}
	}
	l.puts[t][name] = r
}

// commit moves the edits into the manifests; only buckets that differ are copied.
func (l *layer) commit(x *shared) {
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

// succeed makes this layer, planned from nothing, share what it has in common with the one it replaces.
func (l *layer) succeed(old *layer, x *shared) {
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
