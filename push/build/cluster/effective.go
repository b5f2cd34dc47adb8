package cluster

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/store/model"
)

// Effective returns the patches of s.Patches that change the cluster, in order of application; nil: none does. It
// builds the cluster once.
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

// Effective returns the patch that adds the cluster, also if Build fails.
func (s Added) Effective() []model.Patch { return []model.Patch{s.Patch} }
