package validate

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/object"
)

// Classes of the Gateway API that are the mesh's, and their controllers (istio pkg/config/constants: ManagedGatewayController and others). API servers ask by the
// same ones (deploy/docs/validation.md, and deploy/chart, whose ValidatingAdmissionPolicy warns of Gateways of other classes with these controllers).
var (
	meshControllers = []string{"istio.io/gateway-controller", "istio.io/unmanaged-gateway", "istio.io/mesh-controller"}
	meshClasses     = []string{"istio", "istio-remote", "istio-waypoint"}
)

// ofGatewayAPI warns of what this version does not do with an object of the Gateway API: with a class or a Gateway of the mesh, and with a route of the mesh,
// whose parent is a Service and not a Gateway (gateway-api.sigs.k8s.io: GAMMA). Others are somebody else's, and routes of a Gateway are as little
// served as that is, which was said of it.
func ofGatewayAPI(tree map[string]any, of object.ID) []string {
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(tree, fields...)
		return value
	}
	switch {
	case of.Kind == "GatewayClass":
		if by := text("spec", "controllerName"); slices.Contains(meshControllers, by) {
			return []string{fmt.Sprintf("spec.controllerName: the Gateway API is not served by this version: nobody accepts classes of %s", by)}
		}
	case of.Kind == "Gateway":
		if class := text("spec", "gatewayClassName"); slices.Contains(meshClasses, class) {
			return []string{fmt.Sprintf("spec.gatewayClassName: the Gateway API is not served by this version: a Gateway of class %s gets no Deployment, Service, listeners or status, and its routes lead nowhere", class)}
		}
	default:
		parents, _, _ := unstructured.NestedSlice(tree, "spec", "parentRefs")
		for i, one := range parents {
			if p, _ := one.(map[string]any); p["kind"] == "Service" || p["kind"] == "ServiceEntry" {
				return []string{fmt.Sprintf("spec.parentRefs[%d]: the Gateway API is not served by this version: sidecars route nothing by this %s; a VirtualService does that", i, of.Kind)}
			}
		}
	}
	return nil
}
