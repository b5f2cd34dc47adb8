package cluster

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/store/model"
)

// Effective returns the patches of s.Patches that change the cluster, in order of application. A patch also counts if a
// later patch reverts its change. The result is nil if no patch changes the cluster, or if Build fails before it
// applies patches. Effective builds the cluster once, if there are patches.
func (s Outbound) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(t *patch.Trace) { _, _, _ = s.build(t) })
}

// Effective returns the patches that change the cluster, as Outbound.Effective does.
func (s Inbound) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(t *patch.Trace) { _, _, _ = s.build(t) })
}

// Effective returns the patches that change the cluster, as Outbound.Effective does.
func (s Static) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(t *patch.Trace) { _, _, _ = s.build(t) })
}

// Effective returns a list of one element, the patch that adds the cluster, also if Build fails.
func (s Added) Effective() []model.Patch { return []model.Patch{s.Patch} }
