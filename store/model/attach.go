package model

import (
	"slices"

	typev1 "istio.io/api/type/v1beta1"
)

// GatewayName is the label by which Pods belong to a Gateway of the Gateway API. Its value is the Gateway's name.
const GatewayName = "gateway.networking.k8s.io/gateway-name"

// GroupGatewayAPI is the API group of the Gateway API.
const GroupGatewayAPI = "gateway.networking.k8s.io"

// TargetsGateway reports whether a target is a Gateway of the Gateway API. Targets of other kinds are for waypoints,
// and select no proxy (istio: pilot/pkg/model/policyattachment.go).
func TargetsGateway(group, kind string) bool { return group == GroupGatewayAPI && kind == "Gateway" }

// TargetGateways returns the names of the Gateways among targets.
func TargetGateways(targets []*typev1.PolicyTargetReference) (names []string) {
	for _, t := range targets {
		if TargetsGateway(t.GetGroup(), t.GetKind()) && t.GetName() != "" {
			names = append(names, t.GetName())
		}
	}
	return names
}

// OfGateways reports whether a proxy belongs to one of the named Gateways, by its label. The Gateways, and so the
// proxy, are in the namespace of the object that names them.
func OfGateways(names []string, of Key, namespace string, labels map[string]string) bool {
	return namespace == of.Namespace && slices.Contains(names, labels[GatewayName])
}

// Attaches reports whether an object with targets or a selector applies to a proxy of a namespace that the object
// reaches. An object with targets applies to the proxies of these Gateways alone.
func Attaches(of Key, targets []*typev1.PolicyTargetReference, selector map[string]string, namespace string,
	labels map[string]string) bool {
	if len(targets) > 0 {
		return OfGateways(TargetGateways(targets), of, namespace, labels)
	}
	return Matches(selector, labels)
}

// Selects reports whether a policy applies to a proxy of a namespace that the policy reaches.
func (p *Policy) Selects(namespace string, labels map[string]string) bool {
	if names := p.Spec.GetGateways(); len(names) > 0 {
		return OfGateways(names, p.Key, namespace, labels)
	}
	return Matches(p.Spec.GetSelector(), labels)
}

// SelectorOfGateways returns a selector for the field of a record that also names Gateways. Builds that do not know the
// names read the selector alone: they apply the object to the first of these Gateways, and to no other proxy of its
// namespace.
func SelectorOfGateways(names []string) map[string]string {
	return map[string]string{GatewayName: names[0]}
}
