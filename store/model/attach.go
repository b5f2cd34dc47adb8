package model

import (
	"slices"

	typev1 "istio.io/api/type/v1beta1"
)

// GatewayName is the label by which Pods belong to a Gateway of the Gateway API. Its value is the Gateway's name.
const GatewayName = "gateway.networking.k8s.io/gateway-name"

// GroupGatewayAPI is the API group of the Gateway API.
const GroupGatewayAPI = "gateway.networking.k8s.io"

// TargetsGateway reports whether the target of a policy (targetRef) is a Gateway of the Gateway API. Targets of other
// kinds are for waypoints, and select no proxy (istio: pilot/pkg/model/policyattachment.go).
func TargetsGateway(group, kind string) bool { return group == GroupGatewayAPI && kind == "Gateway" }

// TargetGateways returns the names of the Gateways of the Gateway API among targets, in order. Targets without a name
// are left out. The result is nil if no name remains.
func TargetGateways(targets []*typev1.PolicyTargetReference) (names []string) {
	for _, t := range targets {
		if TargetsGateway(t.GetGroup(), t.GetKind()) && t.GetName() != "" {
			names = append(names, t.GetName())
		}
	}
	return names
}

// OfGateways reports whether a proxy belongs to one of the named Gateways, by its label GatewayName. The parameter key
// is the key of the object that names the Gateways. The Gateways, and so the proxy, must be in the namespace of that
// object. The parameters namespace and labels are those of the proxy.
func OfGateways(names []string, key Key, namespace string, labels map[string]string) bool {
	return namespace == key.Namespace && slices.Contains(names, labels[GatewayName])
}

// Attaches reports whether an object applies to a proxy. The parameter key is the object's key. The parameters
// namespace and labels are those of the proxy. An object with targets applies only to proxies of the Gateways among the
// targets, and its selector is ignored. Without targets the selector decides (Matches). The caller must then check that
// the object reaches the namespace of the proxy.
func Attaches(key Key, targets []*typev1.PolicyTargetReference, selector map[string]string, namespace string,
	labels map[string]string) bool {
	if len(targets) > 0 {
		return OfGateways(TargetGateways(targets), key, namespace, labels)
	}
	return Matches(selector, labels)
}

// Selects reports whether a policy applies to a proxy with a namespace and labels. A policy that names Gateways applies
// only to their proxies. If the policy names no Gateways, its selector decides, and the caller must check that the
// policy reaches the namespace of the proxy.
func (p *Policy) Selects(namespace string, labels map[string]string) bool {
	if names := p.Spec.GetGateways(); len(names) > 0 {
		return OfGateways(names, p.Key, namespace, labels)
	}
	return Matches(p.Spec.GetSelector(), labels)
}

// SelectorOfGateways returns the selector to store in a record that also names Gateways; names must not be empty.
// Builds that do not read the names read only the selector. They apply the object to the first of these Gateways, and
// to no other proxy of its namespace.
func SelectorOfGateways(names []string) map[string]string {
	return map[string]string{GatewayName: names[0]}
}
