package vhost

import (
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// meshGateway is the reserved gateway name that stands for all sidecars.
const meshGateway = "mesh"

// Ref is a destination as a virtual service names it. It is the key by which the builder looks in Spec.Destinations.
type Ref struct {
	Host   string
	Subset string
	Port   uint32 // 0: not stated
}

// RefOf is the key of one destination; false where it names nothing.
func RefOf(d *networkingv1.Destination) (Ref, bool) {
	if d.GetHost() == "" {
		return Ref{}, false
	}
	return Ref{Host: d.Host, Subset: d.Subset, Port: d.GetPort().GetNumber()}, true
}

// Named lists every destination of the virtual service's http rules, routes and mirrors, each once, in order of first
// appearance: what the plan has to resolve for a Spec.
func Named(vs *model.VirtualService) []Ref {
	var refs []Ref
	seen := map[Ref]bool{}
	add := func(d *networkingv1.Destination) {
		if ref, ok := RefOf(d); ok && !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
	}
	for _, rule := range vs.Spec.GetHttp() {
		for _, d := range rule.GetRoute() {
			add(d.GetDestination())
		}
		add(rule.GetMirror())
		for _, m := range rule.GetMirrors() {
			add(m.GetDestination())
		}
	}
	return refs
}

// SourceLabelKeys lists the keys of labels that the http rules of the virtual service read of the proxy, sorted. Rules
// that do not apply to sidecars read nothing.
func SourceLabelKeys(vs *model.VirtualService) []string {
	keys := map[string]bool{}
	eachMatch(vs, func(m *networkingv1.HTTPMatchRequest) {
		for k := range m.GetSourceLabels() {
			keys[k] = true
		}
	})
	return slices.Sorted(maps.Keys(keys))
}

// ReadsNamespace says whether an http rule of the virtual service reads the proxy's namespace.
func ReadsNamespace(vs *model.VirtualService) bool {
	reads := false
	eachMatch(vs, func(m *networkingv1.HTTPMatchRequest) { reads = reads || m.GetSourceNamespace() != "" })
	return reads
}

func eachMatch(vs *model.VirtualService, f func(*networkingv1.HTTPMatchRequest)) {
	for _, rule := range vs.Spec.GetHttp() {
		for _, m := range rule.GetMatch() {
			if appliesToMesh(m.GetGateways(), vs.Spec.GetGateways()) {
				f(m)
			}
		}
	}
}

// appliesToMesh: the gateways of a match override those of the virtual service; none at all mean sidecars
// (https://istio.io/latest/docs/reference/config/networking/virtual-service/#HTTPMatchRequest).
func appliesToMesh(match, whole []string) bool {
	if len(match) == 0 {
		match = whole
	}
	return len(match) == 0 || slices.Contains(match, meshGateway)
}
