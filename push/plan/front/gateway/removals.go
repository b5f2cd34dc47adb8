package gateway

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Removals implements front.Front: it calls yield for each static cluster and each listener that a patch removes.
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
