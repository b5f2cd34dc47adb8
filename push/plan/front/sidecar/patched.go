package sidecar

import "navarch.io/navarch/push/plan/front"

// Freeze implements front.Front. It returns a snapshot of the Specs that EnvoyFilters may patch, of listeners and
// published route configurations, without those of variations. Any goroutine may call the result. The Specs of
// listeners are collected by Freeze, because steps change listeners in place. Freeze must not be called within a step.
func (f *Front) Freeze() front.Frozen {
	if len(f.patches) == 0 {
		return func(func(any)) {}
	}
	var specs []any
	for _, l := range f.listeners.table.All() {
		if p, is := l.Spec.(front.Patched); is && p.Patched() {
			specs = append(specs, p)
		}
	}
	routes := f.routes.Freeze()
	return func(found func(spec any)) {
		for _, spec := range specs {
			found(spec)
		}
		routes(found)
	}
}
