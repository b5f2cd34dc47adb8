package patch

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// AddsExtension says whether a patch adds the configuration of a filter. Its context says nothing, as in istiod: Envoy asks by their names for
// those that its listeners name. No other operation is for these.
func AddsExtension(p model.Patch) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_EXTENSION_CONFIG && operation(p) == networkingv1.EnvoyFilter_Patch_ADD
}
