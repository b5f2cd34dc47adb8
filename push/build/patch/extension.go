package patch

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// AddsExtension reports whether a patch adds the configuration of a filter (EXTENSION_CONFIG ADD). Patches of
// EXTENSION_CONFIG with other operations have no effect. As in istiod, the context of the patch is ignored, because
// Envoy requests configurations by the names in its listeners.
func AddsExtension(p model.Patch) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_EXTENSION_CONFIG &&
		operation(p) == networkingv1.EnvoyFilter_Patch_ADD
}
