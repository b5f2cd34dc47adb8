package sidecar

import "navarch.io/navarch/push/plan/front"

// Freeze implements front.Front. The result includes listeners and published route configurations, without those of
// variations. The Specs of listeners are collected now, because steps change listeners in place.
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
