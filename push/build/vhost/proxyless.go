package vhost

import (
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Build encodes the route configuration. It leaves out routes that Envoy would refuse, and routes that match on query
// parameters or require claims. It ignores Domains, Proxy, Patches and the fields for gateways (NoDefault, TLSOnly,
// Misdirected and HTTP3). Build fails if the result violates a constraint of Envoy's API, or if a string is not valid
// UTF-8. The error names the route configuration.
func (s Proxyless) Build() (*xds.Resource, error) {
	vh := &routev3.VirtualHost{Name: xds.VirtualHost(s.Host, s.Port), Domains: []string{"*"}}
	for _, r := range newRouteBuilder(s.Spec).routes() {
		if m := r.GetMatch(); len(m.GetQueryParameters()) > 0 || slices.ContainsFunc(m.GetDynamicMetadata(), requiresClaim) {
			continue // a gRPC request has neither query parameters nor claims, so the match never holds
		}
		vh.Routes = append(vh.Routes, grpcRoute(r))
	}
	rc := &routev3.RouteConfiguration{Name: s.Name, VirtualHosts: []*routev3.VirtualHost{vh}}
	if err := rc.ValidateAll(); err != nil {
		return nil, fmt.Errorf("route configuration %s: %w", s.Name, err)
	}
	return xds.Encode(xds.Route, s.Name, rc)
}

// requiresClaim reports whether a match requires a claim of a token. gRPC's client knows no claims, and ignores matches
// on claims. A match that excludes a claim may be ignored, because it always holds for requests without claims.
func requiresClaim(m *matcherv3.MetadataMatcher) bool { return !m.GetInvert() }

// grpcRoute returns the part of a route that gRPC's client supports. A route with an unsupported action, such as a
// redirect, stays, so that the client fails the requests that match it (gRFC A28).
func grpcRoute(r *routev3.Route) *routev3.Route {
	out := &routev3.Route{Name: r.Name, Match: r.Match, Action: r.Action}
	if fault := r.TypedPerFilterConfig[xds.FaultFilter]; fault != nil {
		out.TypedPerFilterConfig = map[string]*anypb.Any{xds.FaultFilter: fault}
	}
	action := r.GetRoute()
	if action == nil {
		return out
	}
	forward := &routev3.RouteAction{
		ClusterSpecifier: action.ClusterSpecifier, HashPolicy: action.HashPolicy,
		RetryPolicy: grpcRetryPolicy(action.RetryPolicy),
	}
	if w := action.GetWeightedClusters(); w != nil {
		plain := &routev3.WeightedCluster{}
		for _, c := range w.Clusters {
			plain.Clusters = append(plain.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: c.Name, Weight: c.Weight})
		}
		forward.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: plain}
	}
	if t := action.GetTimeout(); t.AsDuration() > 0 {
		forward.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: t}
	}
	out.Action = &routev3.Route_Route{Route: forward}
	return out
}

// grpcRetryPolicy returns the part of a retry policy that gRPC supports: the number of retries, the back-off and the
// conditions. gRPC ignores conditions other than its own status codes.
func grpcRetryPolicy(in *routev3.RetryPolicy) *routev3.RetryPolicy {
	if in == nil {
		return nil
	}
	return &routev3.RetryPolicy{RetryOn: in.RetryOn, NumRetries: in.NumRetries, RetryBackOff: in.RetryBackOff}
}

// ProxylessProblems returns a warning for each field of a VirtualService's http rules that gRPC's own xDS client does
// not support. It returns nil if the client supports all fields. The message of a warning states the effect on
// requests.
func ProxylessProblems(vs *model.VirtualService) (out []model.Problem) {
	for i, rule := range vs.Spec.GetHttp() {
		at := fmt.Sprintf("spec.http[%d]", i)
		if rule.GetDelegate() != nil { // the index of a merged route differs from its index in the user's object
			at = fmt.Sprintf("spec.http: route %q%s", rule.GetName(), delegateOf(rule))
		}
		for _, unsupported := range unsupportedFields(rule) {
			out = append(out, model.Problem{Key: vs.Key, Field: at + "." + unsupported.field,
				Code: problem.NotSupported, Severity: problem.Warning, Message: unsupported.message + " (proxyless gRPC)"})
		}
	}
	return out
}

// unsupportedField is a field of a rule that gRPC's client ignores, with its effect on requests.
type unsupportedField struct{ field, message string }

// unsupportedFields lists the fields of a rule that gRPC's client does not support.
func unsupportedFields(rule *networkingv1.HTTPRoute) (out []unsupportedField) {
	add := func(set bool, field, message string) {
		if set {
			out = append(out, unsupportedField{field, message})
		}
	}
	const ignored, fails = "is not supported; clients ignore it", "is not supported; clients fail the requests that match the rule"
	add(rule.GetRedirect() != nil, "redirect", fails)
	add(rule.GetDirectResponse() != nil, "directResponse", fails)
	add(rule.GetRewrite() != nil, "rewrite", ignored)
	add(rule.GetMirror() != nil, "mirror", ignored)
	add(len(rule.GetMirrors()) > 0, "mirrors", ignored)
	add(rule.GetCorsPolicy() != nil, "corsPolicy", ignored)
	headers := rule.GetHeaders() != nil
	for _, to := range rule.GetRoute() {
		headers = headers || to.GetHeaders() != nil
	}
	add(headers, "headers", ignored)
	for j, m := range rule.GetMatch() {
		add(len(m.GetQueryParams()) > 0, fmt.Sprintf("match[%d].queryParams", j), "is not supported; the match never applies")
		for _, pseudo := range []struct {
			field string
			in    *networkingv1.StringMatch
		}{{"method", m.GetMethod()}, {"authority", m.GetAuthority()}, {"scheme", m.GetScheme()}} {
			add(pseudo.in != nil, fmt.Sprintf("match[%d].%s", j, pseudo.field),
				"is not supported: clients compare only headers that the application sets; the match never applies")
		}
		for _, without := range m.GetWithoutHeaders() {
			add(!matchesPresence(without), fmt.Sprintf("match[%d].withoutHeaders", j),
				"a value is not supported: the match does not apply to requests without the header")
		}
	}
	if r := rule.GetRetries(); r != nil {
		read := &networkingv1.HTTPRetry{Attempts: r.GetAttempts(), RetryOn: r.GetRetryOn(), Backoff: r.GetBackoff()}
		add(!proto.Equal(r, read), "retries", "only attempts, retryOn and backoff are supported")
	}
	return out
}
