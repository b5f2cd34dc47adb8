package validate

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/object"
)

// Classes and controllers of the Gateway API that belong to the mesh (istio pkg/config/constants:
// ManagedGatewayController and others). The webhook's match conditions select the same classes and controllers
// (deploy/docs/validation.md). For Gateways of other classes with these controllers, a ValidatingAdmissionPolicy of the
// chart warns.
var (
	meshControllers = []string{"istio.io/gateway-controller", "istio.io/unmanaged-gateway", "istio.io/mesh-controller"}
	meshClasses     = []string{"istio", "istio-remote", "istio-waypoint"}
)

// ofGatewayAPI returns a warning for an object of the Gateway API that is meant for the mesh, because this version does
// not serve the Gateway API. It warns about a class or a Gateway of the mesh, and about a route with a Service or a
// ServiceEntry as parent (gateway-api.sigs.k8s.io: GAMMA). For other objects it returns nil. Other classes and Gateways
// belong to other controllers. A route with only Gateways as parents gets no warning, because the Gateways got one.
func ofGatewayAPI(tree map[string]any, of object.ID) []string {
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(tree, fields...)
		return value
	}
	switch {
	case of.Kind == "GatewayClass":
		if by := text("spec", "controllerName"); slices.Contains(meshControllers, by) {
			return []string{fmt.Sprintf(
				"spec.controllerName: the Gateway API is not served by this version: no controller accepts classes of %s", by)}
		}
	case of.Kind == "Gateway":
		if class := text("spec", "gatewayClassName"); slices.Contains(meshClasses, class) {
			return []string{fmt.Sprintf("spec.gatewayClassName: the Gateway API is not served by this version: "+
				"a Gateway of class %s gets no Deployment, Service, listeners or status, and its routes lead nowhere", class)}
		}
	default:
		parents, _, _ := unstructured.NestedSlice(tree, "spec", "parentRefs")
		for i, one := range parents {
			if p, _ := one.(map[string]any); p["kind"] == "Service" || p["kind"] == "ServiceEntry" {
				return []string{fmt.Sprintf("spec.parentRefs[%d]: the Gateway API is not served by this version: "+
					"sidecars route nothing by this %s; a VirtualService does that", i, of.Kind)}
			}
		}
	}
	return nil
}
