package analyze

import (
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
)

// meshGateway is the name that stands for all sidecars in the field gateways of a VirtualService.
const meshGateway = "mesh"

// portSelectors reports destinations without a port whose service has several ports.
func portSelectors(w *world) {
	ports := map[string]int{}
	for _, of := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for svc := range each[*model.Service](w, of) {
			for _, host := range svc.Spec.GetHosts() {
				ports[host] = max(ports[host], len(svc.Spec.GetPorts()))
			}
		}
	}
	for vs := range each[*model.VirtualService](w, model.KindVirtualService) {
		normal.Destinations(vs.Spec, func(path string, d *networkingv1.Destination) {
			if n := ports[d.GetHost()]; d.GetPort() == nil && n > 1 {
				w.foundRecord(problem.VirtualServiceDestinationPortSelectorRequired, vs, path,
					"service %q has %d ports and none is stated: requests go to the port that they came to, and fail where the service has no such port",
					d.GetHost(), n)
			}
		})
	}
}

// uncheckedServers reports TLS settings of DestinationRules that name no CA certificates to verify the server with.
func uncheckedServers(w *world) {
	unchecked := func(t *networkingv1.ClientTLSSettings) bool {
		return (t.GetMode() == networkingv1.ClientTLSSettings_SIMPLE || t.GetMode() == networkingv1.ClientTLSSettings_MUTUAL) &&
			t.GetCaCertificates() == "" && t.GetCredentialName() == ""
	}
	const text = "mode %v without caCertificates or credentialName: " +
		"servers of %q are verified by the public authorities of the proxy's image alone"
	for rule := range each[*model.DestinationRule](w, model.KindDestinationRule) {
		policy := rule.Spec.GetTrafficPolicy()
		if t := policy.GetTls(); unchecked(t) {
			w.foundRecord(problem.NoServerCertificateVerificationDestinationLevel, rule, "spec.trafficPolicy.tls", text, t.GetMode(),
				rule.Spec.GetHost())
		}
		for i, p := range policy.GetPortLevelSettings() {
			if t := p.GetTls(); unchecked(t) {
				w.foundRecord(problem.NoServerCertificateVerificationPortLevel, rule, fmt.Sprintf("spec.trafficPolicy.portLevelSettings[%d].tls", i),
					text+", at port %d", t.GetMode(), rule.Spec.GetHost(), p.GetPort().GetNumber())
			}
		}
	}
}

// ingressSubsets reports gateway routes to a host without a subset, if another VirtualService selects subsets of this
// host. That VirtualService is not for the gateway, so its subsets do not affect the gateway's route.
func ingressSubsets(w *world) {
	choosing := map[string][]*model.VirtualService{}
	for vs := range each[*model.VirtualService](w, model.KindVirtualService) {
		for _, rule := range vs.Spec.GetHttp() {
			for _, to := range rule.GetRoute() {
				host := to.GetDestination().GetHost()
				if to.GetDestination().GetSubset() != "" && slices.Contains(vs.Spec.GetHosts(), host) && !slices.Contains(choosing[host], vs) {
					choosing[host] = append(choosing[host], vs)
				}
			}
		}
	}
	for vs := range each[*model.VirtualService](w, model.KindVirtualService) {
		at := slices.IndexFunc(vs.Spec.GetGateways(), func(name string) bool { return name != meshGateway })
		if at < 0 {
			continue
		}
		gateway := vs.Spec.GetGateways()[at]
		for i, rule := range vs.Spec.GetHttp() {
			for j, to := range rule.GetRoute() {
				d := to.GetDestination()
				k := slices.IndexFunc(choosing[d.GetHost()], func(o *model.VirtualService) bool {
					return !slices.Contains(o.Spec.GetGateways(),
						gateway)
				})
				if d.GetSubset() == "" && k >= 0 {
					w.foundRecord(problem.IngressRouteRulesNotAffected, vs, fmt.Sprintf("spec.http[%d].route[%d].destination", i, j),
						"goes to all of %q at gateway %s: the subset in %v has no effect there", d.GetHost(), gateway, choosing[d.GetHost()][k].Key)
				}
			}
		}
	}
}

// claims reports VirtualServices that match claims of tokens at a gateway whose Pods have no RequestAuthentication.
func claims(w *world) {
	for vs := range each[*model.VirtualService](w, model.KindVirtualService) {
		field, claim := claimOf(vs.Spec)
		if claim == "" {
			continue
		}
		for _, r := range w.routers {
			i := slices.IndexFunc(r.gateways, func(g *model.Gateway) bool {
				return slices.Contains(vs.Spec.GetGateways(), g.Key.Namespace+"/"+g.Key.Name)
			})
			if i >= 0 && !w.verifiesTokens(r) {
				w.foundRecord(problem.JwtClaimBasedRoutingWithoutRequestAuthN, vs, field,
					"matches the claim %s, and no RequestAuthentication is for the Pods of %v in namespace %s: the rule never matches", claim,
					r.gateways[i].Key, r.namespace)
				break
			}
		}
	}
}

// verifiesTokens reports whether a RequestAuthentication applies to the Pods of a router.
func (w *world) verifiesTokens(r *router) bool {
	for p := range each[*model.Policy](w, model.KindRequestAuthentication) {
		if (p.Spec.GetMeshWide() || p.Key.Namespace == r.namespace) && p.Selects(r.namespace, r.labels) {
			return true
		}
	}
	return false
}

// claimOf returns the first match on a claim in a VirtualService, and the field of the match. Both are empty if the
// VirtualService matches no claim.
func claimOf(vs *networkingv1.VirtualService) (field, claim string) {
	for i, rule := range vs.GetHttp() {
		for j, m := range rule.GetMatch() {
			if field, claim := virtualservice.ClaimOf(m); claim != "" {
				return fmt.Sprintf("spec.http[%d].match[%d].%s", i, j, field), claim
			}
		}
	}
	return "", ""
}

// relativePatches reports patches whose outcome depends on other patches, in EnvoyFilters without a priority.
func relativePatches(w *world) {
	for filter := range each[*model.EnvoyFilter](w, model.KindEnvoyFilter) {
		if filter.Spec.GetPriority() != 0 {
			continue
		}
		for i, p := range filter.Spec.GetConfigPatches() {
			if !normal.RelativePatch(p) {
				continue
			}
			code, more := problem.EnvoyFilterUsesRelativeOperation, ""
			if p.GetMatch().GetProxy().GetProxyVersion() != "" {
				code, more = problem.EnvoyFilterUsesRelativeOperationWithProxyVersion, "; with proxyVersion, also on the version during an upgrade"
			}
			w.foundRecord(code, filter, fmt.Sprintf("spec.configPatches[%d].patch.operation", i),
				"%v without spec.priority: its outcome depends on the filters that older EnvoyFilters have added%s", p.GetPatch().GetOperation(), more)
		}
	}
}
