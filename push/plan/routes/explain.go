package routes

import (
	"cmp"
	"maps"
	"slices"

	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/xds"
)

// Explain returns the Spec (all inputs of the build) of a route configuration, followed by the Specs of its virtual
// hosts in their order. The parameter v selects the proxies of a variation (proxies with certain labels or other
// inputs). If v is nil, the result is for proxies without inputs. The result is nil if no listener requests a route
// configuration with this name, or if its build failed.
func (t *Table) Explain(name string, v *host.Variation) []any {
	rc := t.configs[name]
	if rc == nil || rc.Res == nil {
		return nil
	}
	out, as := []any{rc.Spec}, t.Hosts.WithoutInputs()
	if v != nil {
		if own := v.Layer.Spec(xds.Ref{Type: xds.Route, Name: name}); own != nil {
			out[0], as = own, t.Hosts.Of(v)
		}
	}
	for _, r := range rc.runs {
		for _, id := range r.ids {
			var found []input.Problem
			if spec, ok := t.specOf(rc, &rc.entries.Get(id).VirtualHost, as, &found, func() {}); ok {
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

// Freeze returns a function that calls its argument with each patched Spec, in no order. These are Specs (inputs of
// builds) of published route configurations and of their virtual hosts, at the time of the call of Freeze. Route
// configurations of variations are not included. Any goroutine may call the returned function. Freeze must not be
// called while the table plans a change.
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
		if rc.of == t.own {
			entries = append(entries, rc.entries.Fork())
		} else {
			entries = append(entries, rc.entries) // shared, so nothing changes it
		}
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

// Describe calls line, a function like fmt.Printf, for each decision of the table, in no order. Route configurations
// that are not published are included. The lines are for tests that compare tables.
func (t *Table) Describe(line func(format string, args ...any)) {
	for name, rc := range t.configs {
		line("routes %s: %v %v %p %d %v %v", name, rc.Config, rc.Spec, rc.Res, rc.users, rc.taken, rc.added)
		for id, en := range rc.entries.All() {
			frag := en.frag
			if rc.users <= 0 {
				frag = nil // without a listener, the fragment is built in some tables only
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

// Serving returns the virtual hosts of some hosts, in all published route configurations. The function named returns
// true for these hosts. The result is sorted by name of the configuration, host and port, and nil if it is empty.
// Virtual hosts that are left out are not included. The parameter v selects the proxies of a variation (proxies with
// certain inputs, such as labels). If v is nil, the result is for proxies without inputs.
func (t *Table) Serving(named func(host string) bool, v *host.Variation) (all []host.Routed) {
	for _, name := range slices.Sorted(maps.Keys(t.configs)) {
		rc := t.configs[name]
		if rc.Res == nil {
			continue
		}
		as := t.Hosts.WithoutInputs()
		if v != nil && v.Layer.Spec(xds.Ref{Type: xds.Route, Name: name}) != nil {
			as = t.Hosts.Of(v)
		}
		at := len(all)
		for _, en := range rc.entries.All() {
			if !named(en.Host) {
				continue
			}
			var found []input.Problem
			if spec, ok := t.specOf(rc, &en.VirtualHost, as, &found, func() {}); ok {
				all = append(all, host.Routed{Config: name, Spec: spec})
			}
		}
		slices.SortFunc(all[at:], func(a, b host.Routed) int {
			return cmp.Or(cmp.Compare(a.Spec.Host, b.Spec.Host), cmp.Compare(a.Spec.Port, b.Spec.Port))
		})
	}
	return all
}
