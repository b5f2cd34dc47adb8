package input

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Removal is a cluster or listener that is not planned, because a patch removes it as a whole.
type Removal struct {
	By  model.Patch
	Ref xds.Ref
}

// RemovesWhole says whether a patch removes clusters or listeners as a whole.
func RemovesWhole(p model.Patch) bool {
	c := p.Config()
	return c.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_REMOVE &&
		(c.GetApplyTo() == networkingv1.EnvoyFilter_CLUSTER || c.GetApplyTo() == networkingv1.EnvoyFilter_LISTENER)
}

// Removing are the patches that remove clusters or listeners as a whole.
func (s PatchSet) Removing() (removing PatchSet) {
	for _, p := range s {
		if RemovesWhole(p) {
			removing = append(removing, p)
		}
	}
	return removing
}

// Removals are those of one resource: one for each patch that removes it.
func (s PatchSet) Removals(ref xds.Ref, removes func(model.Patch) bool) (all []Removal) {
	for _, p := range s {
		if removes(p) {
			all = append(all, Removal{p, ref})
		}
	}
	return all
}
