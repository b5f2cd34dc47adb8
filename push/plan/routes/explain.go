package routes

import (
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/xds"
)

// Explain lists the Spec of a route configuration and those of its virtual hosts, in order, as the proxies of a
// variation have them; nil: no variation. The result is nil if no listener asks for a route configuration of this
// name.
func (t *Table) Explain(name string, v *host.Variation) []any {
	rc := t.configs[name]
	if rc == nil || rc.Res == nil {
		return nil
	}
	out, as := []any{rc.Spec}, t.Hosts.Plain()
	if v != nil {
		if own := v.Layer.Spec(xds.Ref{Type: xds.Route, Name: name}); own != nil {
			out[0], as = own, t.Hosts.Of(v)
		}
	}
	for _, r := range rc.runs {
		for _, id := range r.ids {
			var found []input.Problem
			if spec, ok := t.specOf(rc, &rc.entries.Get(id).VirtualHost, as, &found); ok {
				out = append(out, spec)
			}
		}
	}
	for _, last := range rc.tail {
		if last.frag != nil {
			out = append(out, last.spec)
		}
	}
	return out
}

// Freeze returns a walk over the Specs that patches may change, of all published route configurations outside
// variations. Any goroutine may walk. Between steps only: virtual hosts, of which there are many, are read during the
// walk, because steps replace them and never change them.
func (t *Table) Freeze() front.Frozen {
	var specs []any
	keep := func(spec any) {
		if p, is := spec.(front.Patched); is && p.Patched() {
			specs = append(specs, spec)
		}
	}
	var entries []layer.Table[entry]
	for _, rc := range t.configs {
		if rc.users <= 0 {
			continue
		}
		keep(rc.Spec)
		for _, last := range rc.tail {
			keep(last.spec)
		}
		entries = append(entries, rc.entries.Fork())
	}
	return func(found func(spec any)) {
		for _, spec := range specs {
			found(spec)
		}
		for _, table := range entries {
			for _, en := range table.All() {
				if en.frag != nil && en.spec.Patched() {
					found(en.spec)
				}
			}
		}
	}
}

// Describe writes all decisions of the table, published or not, one per line, in any order. Tests compare tables by
// these lines.
func (t *Table) Describe(line func(format string, args ...any)) {
	for name, rc := range t.configs {
		line("routes %s: %v %v %p %d %v %v", name, rc.Config, rc.Spec, rc.Res, rc.users, rc.taken, rc.added)
		for id, en := range rc.entries.All() {
			frag := en.frag
			if rc.users <= 0 {
				frag = nil // built, or not yet: no listener asks for it
			}
			line("entry %s %s: %v %p %v", name, id, en.spec, frag, rc.reading[id] == en)
			if en.Reads.Len() > 0 != (rc.reading[id] != nil) {
				line("entry %s %s is read wrongly", name, id)
			}
		}
		for _, r := range rc.runs {
			line("run %s: %v", name, r.ids)
		}
	}
}
