package gateway

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Removals implements front.Front. It reports the static clusters and the listeners that patches remove. It calls yield
// once for each such resource and each patch that removes it.
func (f *Front) Removals(yield func(input.Removal)) {
	removing := f.Patches.Removing()
	if len(removing) == 0 {
		return
	}
	f.Outbound.Removals(yield)
	for _, s := range f.sockets {
		removing.Removals(xds.Ref{Type: xds.Listener, Name: s.name}, func(p model.Patch) bool {
			return patch.RemovesListener(p, side, s.name, s.Port)
		}, yield)
	}
}
