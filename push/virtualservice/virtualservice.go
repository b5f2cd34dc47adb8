// Package virtualservice extracts facts from VirtualServices. The facts are the destinations of their routes, the
// gateways to which they apply, and the labels and namespaces that their matches require of clients.
//
// Owns: nothing.  Reads: its arguments.  Never: reads a snapshot or a proxy; decides which rule applies.
package virtualservice

import (
	"iter"
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Mesh is the reserved gateway name for the clients in the mesh: sidecars, and applications with gRPC's own xDS client.
const Mesh = "mesh"

// Ref is a destination as a VirtualService states it.
type Ref struct {
	Host   string
	Subset string // empty: no subset is stated
	Port   uint32 // 0: no port is stated
}

// RefOf returns the Ref of a destination, which may be nil. It returns false if the destination has no host.
func RefOf(d *networkingv1.Destination) (Ref, bool) {
	if d.GetHost() == "" {
		return Ref{}, false
	}
	return Ref{Host: d.Host, Subset: d.Subset, Port: d.GetPort().GetNumber()}, true
}

// Routed returns the destinations of an http rule's routes and mirrors, without repetitions. Routes come first, then
// mirrors, in the order of the rule. Destinations without a host are omitted. The result is nil without destinations.
func Routed(rule *networkingv1.HTTPRoute) (refs []Ref) {
	for d := range ruleDestinations(rule) {
		if ref, ok := RefOf(d); ok && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// SetHosts returns the hosts that an http rule, or one of its routes, writes into requests. They come from
// rewrite.authority of the rule, and from the request headers "host" and ":authority" that the rule or a route sets or
// adds. Empty values are omitted, because they replace nothing. The result is sorted and may have duplicates. It is nil
// without such values.
func SetHosts(rule *networkingv1.HTTPRoute) (hosts []string) {
	if host := rule.GetRewrite().GetAuthority(); host != "" {
		hosts = append(hosts, host)
	}
	of := func(h *networkingv1.Headers) {
		for _, by := range []map[string]string{h.GetRequest().GetSet(), h.GetRequest().GetAdd()} {
			for name, host := range by {
				if host != "" && (strings.EqualFold(name, ":authority") || strings.EqualFold(name, "host")) {
					hosts = append(hosts, host)
				}
			}
		}
	}
	of(rule.GetHeaders())
	for _, r := range rule.GetRoute() {
		of(r.GetHeaders())
	}
	slices.Sort(hosts)
	return hosts
}

// Hosts returns the set of hosts of the routes and mirrors of a VirtualService, for all protocols. The caller owns the
// map, which is not nil.
func Hosts(vs *model.VirtualService) map[string]struct{} {
	hosts := map[string]struct{}{}
	for ref := range Refs(vs) {
		hosts[ref.Host] = struct{}{}
	}
	return hosts
}

// Refs returns the set of destinations of the routes and mirrors of a VirtualService, for all protocols. Destinations
// without a host are omitted. The caller owns the map, which is not nil.
func Refs(vs *model.VirtualService) map[Ref]struct{} {
	refs := map[Ref]struct{}{}
	add := func(d *networkingv1.Destination) {
		if ref, ok := RefOf(d); ok {
			refs[ref] = struct{}{}
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
	return refs
}

// RuleSendsTo reports whether an http rule routes or mirrors requests to a destination with the host, subset and port
// of a Ref.
func RuleSendsTo(rule *networkingv1.HTTPRoute, ref Ref) bool {
	for d := range ruleDestinations(rule) {
		if of, ok := RefOf(d); ok && of == ref {
			return true
		}
	}
	return false
}

// ruleDestinations yields the destinations of the routes and mirrors of one http rule.
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

// source is the common interface of matches of all protocols. Its methods return the restrictions on the client.
type source interface {
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}

// SourceLabels returns a sequence of the labels (key and value) that matches require of the client's proxy. It covers
// all protocols and gateways. Labels may repeat, and their order is not defined.
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

// RequestLabelKeys returns the keys of the source labels in http matches that apply to a gateway, sorted and without
// duplicates. The gateway is Mesh or the namespace/name of a Gateway. The result is nil without such keys.
func RequestLabelKeys(vs *model.VirtualService, gateway string) []string {
	return labelKeys(vs, gateway, requestMatches(vs))
}

// ConnectionLabelKeys returns the keys of the source labels in tcp and tls matches that apply to a gateway, sorted and
// without duplicates. The gateway is Mesh or the namespace/name of a Gateway. The result is nil without such keys.
func ConnectionLabelKeys(vs *model.VirtualService, gateway string) []string {
	return labelKeys(vs, gateway, connectionMatches(vs))
}

// labelKeys returns the label keys in the matches that apply to a gateway, sorted and without duplicates.
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

// requestMatches yields the matches of the http rules.
func requestMatches(vs *model.VirtualService) iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, rule := range vs.Spec.GetHttp() {
			if !each(rule.GetMatch(), yield) {
				return
			}
		}
	}
}

// connectionMatches yields the matches of the tcp and tls rules.
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

// each calls yield for each match, until yield returns false. Its result is false if yield returned false.
func each[M source](matches []M, yield func(source) bool) (more bool) {
	for _, m := range matches {
		if !yield(m) {
			return false
		}
	}
	return true
}

// Connects reports whether a VirtualService has tcp or tls rules.
func Connects(vs *model.VirtualService) bool { return len(vs.Spec.GetTcp())+len(vs.Spec.GetTls()) > 0 }

// ReadsNamespace reports whether any match of any protocol has a sourceNamespace.
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

// For reports whether a VirtualService applies to a gateway, which is Mesh or the namespace/name of a Gateway. A
// VirtualService that names no gateways applies only to Mesh.
func For(vs *model.VirtualService, gateway string) bool {
	names := vs.Spec.GetGateways()
	return len(names) == 0 && gateway == Mesh || slices.Contains(names, gateway)
}

// MatchFor reports whether a match of a rule applies to a gateway. The parameter match lists the gateways of that
// match. If the list is not empty, it overrides the gateways of the VirtualService
// (https://istio.io/latest/docs/reference/config/networking/virtual-service/#HTTPMatchRequest).
func MatchFor(vs *model.VirtualService, match []string, gateway string) bool {
	if len(match) == 0 {
		return For(vs, gateway)
	}
	return slices.Contains(match, gateway)
}

// CatchesAll reports whether a match of an http rule matches all requests. It returns true for nil, which stands for a
// rule without matches. The only regular expression that counts as matching all paths is ".*". CatchesAll ignores the
// restrictions on port, gateways, source labels and source namespace.
func CatchesAll(m *networkingv1.HTTPMatchRequest) bool {
	if len(m.GetHeaders())+len(m.GetWithoutHeaders())+len(m.GetQueryParams()) > 0 ||
		m.GetMethod() != nil || m.GetAuthority() != nil || m.GetScheme() != nil {
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

// ConnectedGateways returns the Gateways (namespace/name) that a VirtualService with tcp or tls rules names in
// spec.gateways, sorted and without duplicates. It leaves out Mesh, so the result may be empty. It returns nil for a
// VirtualService without such rules.
func ConnectedGateways(vs *model.VirtualService) (names []string) {
	if !Connects(vs) {
		return nil
	}
	names = slices.DeleteFunc(slices.Clone(vs.Spec.GetGateways()), func(name string) bool { return name == Mesh })
	slices.Sort(names)
	return slices.Compact(names)
}

// ClaimOf returns the first header of an http match that stands for a claim of a token (model.RoutedClaim), in
// alphabetical order, and its field in the match. Headers precede withoutHeaders. Both results are empty if there is no
// such header. Malformed names stand for no claim.
func ClaimOf(m *networkingv1.HTTPMatchRequest) (field, name string) {
	for _, of := range [...]struct {
		field   string
		headers map[string]*networkingv1.StringMatch
	}{{"headers", m.GetHeaders()}, {"withoutHeaders", m.GetWithoutHeaders()}} {
		for _, name := range slices.Sorted(maps.Keys(of.headers)) {
			if path, _ := model.RoutedClaim(name); path != nil {
				return of.field + "[" + name + "]", name
			}
		}
	}
	return "", ""
}
