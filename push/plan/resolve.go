package plan

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// exported says whether a list of namespaces, as exportTo has it, reaches namespace `to` from `own`.
func exported(exportTo, otherwise []string, own, to string) bool {
	if len(exportTo) == 0 {
		exportTo = otherwise
	}
	for _, e := range exportTo {
		if e == "*" || e == to || e == "." && own == to {
			return true
		}
	}
	return false
}

// precedes orders services of one host for a namespace: its own first, then Kubernetes Services, then the config cluster's, then the
// oldest. One of another cluster is the same service: the first defines it, its endpoints are those of all clusters, and its addresses
// those of the proxy's own (istio: pilot/pkg/serviceregistry/aggregate/controller.go, mergeService).
func precedes(a, b *model.Service, namespace string) bool {
	if own, other := a.Key.Namespace == namespace, b.Key.Namespace == namespace; own != other {
		return own
	}
	if a.Key.Kind != b.Key.Kind {
		return a.Key.Kind == model.KindService
	}
	if config, other := a.Key.Origin.Cluster() == "", b.Key.Origin.Cluster() == ""; config != other {
		return config
	}
	return a.Older(&b.Head) < 0
}

// serviceFor is the one service that a host means in this scope; nil: it sees none.
func (s *scope) serviceFor(host string) *model.Service {
	var best *model.Service
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range s.ByHost(kind, host) {
			svc := r.(*model.Service)
			if exported(svc.Spec.GetExportTo(), nil, svc.Key.Namespace, s.key.Namespace) && s.imports(svc, host) &&
				(best == nil || precedes(svc, best, s.key.Namespace)) {
				best = svc
			}
		}
	}
	return best
}

// addresses are the virtual addresses of a service: those that the proxy's own cluster gives it, where it has any.
func (s *scope) addresses(svc *model.Service) []string {
	if svc.Key.Kind == model.KindService && svc.Key.Origin.Cluster() != s.key.Cluster {
		for r := range s.Named(model.KindService, svc.Key.Namespace, svc.Key.Name) {
			if local := r.(*model.Service).Spec.GetAddresses(); r.Meta().Key.Origin.Cluster() == s.key.Cluster && len(local) > 0 {
				return local
			}
		}
	}
	return svc.Spec.GetAddresses()
}

// sees says whether a VirtualService applies to sidecars of this scope at all.
func (s *scope) sees(vs *model.VirtualService) bool {
	return (len(vs.Spec.GetGateways()) == 0 || slices.Contains(vs.Spec.GetGateways(), "mesh")) &&
		exported(vs.Spec.GetExportTo(), s.mesh.Spec.GetDefaultVirtualServiceExportTo(), vs.Key.Namespace, s.key.Namespace)
}

// virtualServiceFor is the VirtualService that routes a host at one egress listener: the one with the most specific
// host, and of those the oldest. Nil: there is none.
func (s *scope) virtualServiceFor(host string, e *egress) *model.VirtualService {
	var best *model.VirtualService
	s.index.covering(model.KindVirtualService, host, func(pattern string) bool {
		best = s.virtualServiceNaming(pattern, e)
		return best == nil
	})
	return best
}

// virtualServiceNaming is the oldest VirtualService that names this very host or wildcard.
func (s *scope) virtualServiceNaming(host string, e *egress) *model.VirtualService {
	var best *model.VirtualService
	for r := range s.ByHost(model.KindVirtualService, host) {
		vs := r.(*model.VirtualService)
		if s.sees(vs) && e.sees(vs) && (best == nil || vs.Older(&best.Head) < 0) {
			best = vs
		}
	}
	return best
}

// rules are the DestinationRules of one host, merged.
type rules struct {
	main    *model.DestinationRule // gives the traffic policy; nil: none applies
	subsets []subset
}

// subset is one subset, and the rule that defines it.
type subset struct {
	*networkingv1.Subset
	rule *model.DestinationRule
}

func (r rules) subset(name string) (subset, bool) {
	i := slices.IndexFunc(r.subsets, func(s subset) bool { return s.GetName() == name })
	if i < 0 {
		return subset{}, false
	}
	return r.subsets[i], true
}

// rulesFor looks for rules in the client's namespace, the service's, the root namespace: the first that has one for the
// host, or for the longest wildcard, decides
// (https://istio.io/latest/docs/ops/best-practices/traffic-management/#cross-namespace-configuration).
func (s *scope) rulesFor(host string, svc *model.Service) rules {
	tried := make([]string, 0, 3)
	for _, namespace := range [...]string{s.key.Namespace, svc.Key.Namespace, s.root()} {
		if slices.Contains(tried, namespace) {
			continue
		}
		tried = append(tried, namespace)
		if found := s.rulesIn(namespace, host); len(found) > 0 {
			return merge(found)
		}
	}
	return rules{}
}

func (s *scope) rulesIn(namespace, host string) (found []*model.DestinationRule) {
	s.index.covering(model.KindDestinationRule, host, func(pattern string) bool {
		for r := range s.ByHost(model.KindDestinationRule, pattern) {
			rule := r.(*model.DestinationRule)
			if rule.Key.Namespace == namespace && rule.Spec.GetWorkloadSelector() == nil && (namespace == s.key.Namespace ||
				exported(rule.Spec.GetExportTo(), s.mesh.Spec.GetDefaultDestinationRuleExportTo(), namespace, s.key.Namespace)) {
				found = append(found, rule)
			}
		}
		return len(found) == 0
	})
	return found
}

// merge: the oldest traffic policy counts, and of subsets of one name the oldest.
func merge(found []*model.DestinationRule) rules {
	slices.SortFunc(found, func(a, b *model.DestinationRule) int { return a.Older(&b.Head) })
	r := rules{main: found[0]}
	for _, rule := range found {
		if r.main.Spec.GetTrafficPolicy() == nil && rule.Spec.GetTrafficPolicy() != nil {
			r.main = rule
		}
		for _, sub := range rule.Spec.GetSubsets() {
			if _, dup := r.subset(sub.GetName()); !dup && sub.GetName() != "" {
				r.subsets = append(r.subsets, subset{sub, rule})
			}
		}
	}
	return r
}

// hashing is the rule that spreads a destination's requests by consistent hash; nil: none does.
func (r rules) hashing(subsetName string) *model.DestinationRule {
	hashes := func(p *networkingv1.TrafficPolicy) bool {
		return p.GetLoadBalancer().GetConsistentHash() != nil || slices.ContainsFunc(p.GetPortLevelSettings(),
			func(port *networkingv1.TrafficPolicy_PortTrafficPolicy) bool {
				return port.GetLoadBalancer().GetConsistentHash() != nil
			})
	}
	if sub, ok := r.subset(subsetName); ok && hashes(sub.GetTrafficPolicy()) {
		return sub.rule
	}
	if r.main != nil && hashes(r.main.Spec.GetTrafficPolicy()) {
		return r.main
	}
	return nil
}

// Protocols, as far as the plan tells them apart.
func isHTTP(p model.Protocol) bool {
	switch p {
	case model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_HTTP2, model.Protocol_PROTOCOL_GRPC, model.Protocol_PROTOCOL_GRPC_WEB:
		return true
	default:
		return false
	}
}

func isHTTP2(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTP2 || p == model.Protocol_PROTOCOL_GRPC
}

func isTLS(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTPS || p == model.Protocol_PROTOCOL_TLS
}

// protocolOf reads the protocol of a Sidecar's port
// (https://istio.io/latest/docs/reference/config/networking/sidecar/#SidecarPort); false where it is unknown.
func protocolOf(name string) (model.Protocol, bool) {
	switch strings.ToUpper(name) {
	case "":
		return model.Protocol_PROTOCOL_AUTO, true
	case "HTTP":
		return model.Protocol_PROTOCOL_HTTP, true
	case "HTTP2":
		return model.Protocol_PROTOCOL_HTTP2, true
	case "GRPC":
		return model.Protocol_PROTOCOL_GRPC, true
	case "GRPC-WEB", "GRPC_WEB":
		return model.Protocol_PROTOCOL_GRPC_WEB, true
	case "HTTPS":
		return model.Protocol_PROTOCOL_HTTPS, true
	case "TLS":
		return model.Protocol_PROTOCOL_TLS, true
	case "TCP", "MONGO", "REDIS", "MYSQL":
		return model.Protocol_PROTOCOL_TCP, true
	}
	return model.Protocol_PROTOCOL_AUTO, false
}
