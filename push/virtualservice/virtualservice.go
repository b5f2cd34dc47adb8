// Package virtualservice walks VirtualServices: what they send to, and what they read of the proxies that they are for.
//
// Owns: nothing.  Reads: the record that it is given.  Never: a snapshot, a proxy; it decides nothing.
package virtualservice

import (
	"iter"
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// meshGateway is the reserved gateway name that stands for all sidecars.
const meshGateway = "mesh"

// Ref is a destination as a VirtualService names it.
type Ref struct {
	Host   string
	Subset string
	Port   uint32 // 0: not stated
}

// RefOf is one destination; false where it names nothing.
func RefOf(d *networkingv1.Destination) (Ref, bool) {
	if d.GetHost() == "" {
		return Ref{}, false
	}
	return Ref{Host: d.Host, Subset: d.Subset, Port: d.GetPort().GetNumber()}, true
}

// Routed lists every destination of the http rules, routes and mirrors, each once, in order of first appearance.
func Routed(vs *model.VirtualService) (refs []Ref) {
	seen := map[Ref]bool{}
	for d := range httpDestinations(vs) {
		if ref, ok := RefOf(d); ok && !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
	}
	return refs
}

// Hosts are the hosts that a VirtualService sends to, of all protocols.
func Hosts(vs *model.VirtualService) map[string]struct{} {
	hosts := map[string]struct{}{}
	add := func(d *networkingv1.Destination) {
		if d.GetHost() != "" {
			hosts[d.GetHost()] = struct{}{}
		}
	}
	for d := range httpDestinations(vs) {
		add(d)
	}
	for _, rule := range vs.Spec.GetTcp() {
		for _, d := range rule.GetRoute() {
			add(d.GetDestination())
		}
	}
	for _, rule := range vs.Spec.GetTls() {
		for _, d := range rule.GetRoute() {
			add(d.GetDestination())
		}
	}
	return hosts
}

func httpDestinations(vs *model.VirtualService) iter.Seq[*networkingv1.Destination] {
	return func(yield func(*networkingv1.Destination) bool) {
		for _, rule := range vs.Spec.GetHttp() {
			for _, d := range rule.GetRoute() {
				if !yield(d.GetDestination()) {
					return
				}
			}
			if !yield(rule.GetMirror()) {
				return
			}
			for _, m := range rule.GetMirrors() {
				if !yield(m.GetDestination()) {
					return
				}
			}
		}
	}
}

// SourceLabels are the labels that the http rules compare with those of the proxy, for whatever gateways they are; some may come several
// times.
func SourceLabels(vs *model.VirtualService) iter.Seq2[string, string] {
	return sourceLabels(vs, func(*networkingv1.HTTPMatchRequest) bool { return true })
}

// SourceLabelKeys are the keys of the labels that matches for sidecars compare, each once, sorted.
func SourceLabelKeys(vs *model.VirtualService) []string {
	var keys map[string]bool
	for key := range sourceLabels(vs, func(m *networkingv1.HTTPMatchRequest) bool { return ForSidecars(vs, m.GetGateways()) }) {
		if keys == nil {
			keys = map[string]bool{}
		}
		keys[key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

func sourceLabels(vs *model.VirtualService, of func(*networkingv1.HTTPMatchRequest) bool) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for _, rule := range vs.Spec.GetHttp() {
			for _, m := range rule.GetMatch() {
				if !of(m) {
					continue
				}
				for key, value := range m.GetSourceLabels() {
					if !yield(key, value) {
						return
					}
				}
			}
		}
	}
}

// ReadsNamespace says whether any match of any protocol has a sourceNamespace.
func ReadsNamespace(vs *model.VirtualService) bool {
	for _, rule := range vs.Spec.GetHttp() {
		if anyReads(rule.GetMatch()) {
			return true
		}
	}
	for _, rule := range vs.Spec.GetTcp() {
		if anyReads(rule.GetMatch()) {
			return true
		}
	}
	for _, rule := range vs.Spec.GetTls() {
		if anyReads(rule.GetMatch()) {
			return true
		}
	}
	return false
}

func anyReads[M interface{ GetSourceNamespace() string }](matches []M) bool {
	return slices.ContainsFunc(matches, func(m M) bool { return m.GetSourceNamespace() != "" })
}

// ForSidecars says whether a match that names these gateways is for sidecars: the gateways of a match override those of its
// VirtualService, and none at all mean sidecars
// (https://istio.io/latest/docs/reference/config/networking/virtual-service/#HTTPMatchRequest).
func ForSidecars(vs *model.VirtualService, match []string) bool {
	gateways := match
	if len(gateways) == 0 {
		gateways = vs.Spec.GetGateways()
	}
	return len(gateways) == 0 || slices.Contains(gateways, meshGateway)
}
