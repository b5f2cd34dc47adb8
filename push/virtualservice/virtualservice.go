// Package virtualservice walks VirtualServices: the destinations that they send to, the gateways that they are for,
// and the properties of a proxy that they match.
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

// Mesh is the reserved gateway name for the clients in the mesh: sidecars, and applications with gRPC's own xDS client.
const Mesh = "mesh"

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

// Routed lists every destination of an http rule, routes and mirrors, each once, in order of first appearance.
func Routed(rule *networkingv1.HTTPRoute) (refs []Ref) {
	for d := range ruleDestinations(rule) {
		if ref, ok := RefOf(d); ok && !slices.Contains(refs, ref) {
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
	for _, rule := range vs.Spec.GetHttp() {
		for d := range ruleDestinations(rule) {
			add(d)
		}
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

// RuleSendsTo says whether a destination is one of an http rule.
func RuleSendsTo(rule *networkingv1.HTTPRoute, ref Ref) bool {
	for d := range ruleDestinations(rule) {
		if of, ok := RefOf(d); ok && of == ref {
			return true
		}
	}
	return false
}

// ruleDestinations are those of the routes and mirrors of one http rule.
func ruleDestinations(rule *networkingv1.HTTPRoute) iter.Seq[*networkingv1.Destination] {
	return func(yield func(*networkingv1.Destination) bool) {
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

// source is what matches of all protocols say of where requests and connections come from.
type source interface {
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}

// SourceLabels are the labels that rules of all protocols compare with those of the proxy, for whatever gateways they
// are; some may come several times.
func SourceLabels(vs *model.VirtualService) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for _, matches := range []iter.Seq[source]{requestMatches(vs), connectionMatches(vs)} {
			for m := range matches {
				for key, value := range m.GetSourceLabels() {
					if !yield(key, value) {
						return
					}
				}
			}
		}
	}
}

// RequestLabelKeys lists the keys of the labels that matches of http rules for a gateway compare, each once, sorted.
func RequestLabelKeys(vs *model.VirtualService, gateway string) []string {
	return labelKeys(vs, gateway, requestMatches(vs))
}

// ConnectionLabelKeys is RequestLabelKeys for tcp and tls rules.
func ConnectionLabelKeys(vs *model.VirtualService, gateway string) []string {
	return labelKeys(vs, gateway, connectionMatches(vs))
}

func labelKeys(vs *model.VirtualService, gateway string, matches iter.Seq[source]) []string {
	var keys map[string]bool
	for m := range matches {
		if len(m.GetSourceLabels()) == 0 || !MatchFor(vs, m.GetGateways(), gateway) {
			continue
		}
		if keys == nil {
			keys = map[string]bool{}
		}
		for key := range m.GetSourceLabels() {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// requestMatches are the matches of the http rules.
func requestMatches(vs *model.VirtualService) iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, rule := range vs.Spec.GetHttp() {
			if !each(rule.GetMatch(), yield) {
				return
			}
		}
	}
}

// connectionMatches are the matches of the tcp and tls rules.
func connectionMatches(vs *model.VirtualService) iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, rule := range vs.Spec.GetTcp() {
			if !each(rule.GetMatch(), yield) {
				return
			}
		}
		for _, rule := range vs.Spec.GetTls() {
			if !each(rule.GetMatch(), yield) {
				return
			}
		}
	}
}

func each[M source](matches []M, yield func(source) bool) (more bool) {
	for _, m := range matches {
		if !yield(m) {
			return false
		}
	}
	return true
}

// Connects says whether a VirtualService has rules for connections, tcp or tls.
func Connects(vs *model.VirtualService) bool { return len(vs.Spec.GetTcp())+len(vs.Spec.GetTls()) > 0 }

// ReadsNamespace says whether any match of any protocol has a sourceNamespace.
func ReadsNamespace(vs *model.VirtualService) bool {
	for _, matches := range []iter.Seq[source]{requestMatches(vs), connectionMatches(vs)} {
		for m := range matches {
			if m.GetSourceNamespace() != "" {
				return true
			}
		}
	}
	return false
}

// For says whether a VirtualService is for a gateway: Mesh, or the namespace/name of a Gateway. One that names no
// gateways is for the mesh.
func For(vs *model.VirtualService, gateway string) bool {
	names := vs.Spec.GetGateways()
	return len(names) == 0 && gateway == Mesh || slices.Contains(names, gateway)
}

// MatchFor says whether a match that names these gateways is for a gateway: the gateways of a match override those of
// its VirtualService (https://istio.io/latest/docs/reference/config/networking/virtual-service/#HTTPMatchRequest).
func MatchFor(vs *model.VirtualService, match []string, gateway string) bool {
	if len(match) == 0 {
		return For(vs, gateway)
	}
	return slices.Contains(match, gateway)
}

// CatchesAll says whether a match of an http rule matches all requests; nil: a rule without matches does.
func CatchesAll(m *networkingv1.HTTPMatchRequest) bool {
	if len(m.GetHeaders())+len(m.GetWithoutHeaders())+len(m.GetQueryParams()) > 0 || m.GetMethod() != nil || m.GetAuthority() != nil || m.GetScheme() != nil {
		return false
	}
	switch uri := m.GetUri().GetMatchType().(type) {
	case nil:
		return true
	case *networkingv1.StringMatch_Prefix:
		return uri.Prefix == "/" || uri.Prefix == ""
	case *networkingv1.StringMatch_Regex:
		return uri.Regex == ".*"
	}
	return false
}
