package sidecar

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Removals implements front.Front. It reports the outbound listeners and the clusters without a host that EnvoyFilters
// remove as a whole. Removed resources are not planned. Removals calls yield once for each such resource and each patch
// that removes it.
func (f *Front) Removals(yield func(input.Removal)) {
	removing := f.patches.Removing()
	if len(removing) == 0 {
		return
	}
	f.outbound().Removals(yield)
	listener := func(name string, port uint32) {
		removing.Removals(xds.Ref{Type: xds.Listener, Name: name}, func(p model.Patch) bool {
			return patch.RemovesListener(p, side, name, port)
		}, yield)
	}
	if f.listeners.redirects() {
		listener(xds.VirtualOutbound, f.in.OutboundPort())
	}
	for name, l := range f.listeners.table.All() {
		if http, rest, ok := l.leading(); ok {
			listener(name, bound(http, rest).port)
		}
	}
}
