package input

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Removal names a cluster or listener (Ref) that is not planned because a patch (By) removes it as a whole.
type Removal struct {
	By  model.Patch
	Ref xds.Ref
}

// Removing returns the patches that remove clusters or listeners as a whole, in order. The result is nil if there are
// no such patches.
func (s PatchSet) Removing() (removing PatchSet) {
	for _, p := range s {
		c := p.Config()
		whole := c.GetApplyTo() == networkingv1.EnvoyFilter_CLUSTER || c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER
		if whole && c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_REMOVE {
			removing = append(removing, p)
		}
	}
	return removing
}

// Removals calls f for each patch that removes the resource ref, in order. The function removes must report whether a
// patch removes the resource.
func (s PatchSet) Removals(ref xds.Ref, removes func(model.Patch) bool, f func(Removal)) {
	for _, p := range s {
		if removes(p) {
			f(Removal{p, ref})
		}
	}
}
