package sidecar

import "navarch.io/navarch/push/plan/front"

// Freeze implements front.Front. It returns a snapshot of the Specs (the inputs of resources) that EnvoyFilters may
// patch. These are Specs of listeners and of published route configurations. Specs for proxies with certain inputs,
// such as labels, are left out. Any goroutine may call the result. Freeze itself collects the Specs of listeners,
// because later steps change listeners in place. Freeze must not be called within a step (the planning of one change).
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
