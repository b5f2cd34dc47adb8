package sidecar

import (
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/layer"
)

// Freeze implements front.Front: of all listeners, and of the route configurations that a listener asks for, as proxies have them that are of no
// variation. Listeners are looked at now, because a step changes them in place; virtual hosts, of which there are many, later: they are replaced.
func (f *Front) Freeze() front.Frozen {
	if len(f.patches) == 0 {
		return func(func(any)) {}
	}
	var specs []any
	look := func(spec any) {
		if p, is := spec.(front.Patched); is && p.Patched() {
			specs = append(specs, spec)
		}
	}
	for _, l := range f.listeners.table.All() {
		look(l.Spec)
	}
	var entries []layer.Table[entry]
	for _, rc := range f.routes.table {
		if rc.users <= 0 {
			continue
		}
		look(rc.Spec)
		for _, tail := range rc.tail {
			look(tail.spec)
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
