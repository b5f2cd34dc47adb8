package vhost

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// route builds the route of one rule of a VirtualService for one of the rule's matches. The argument match is the
// encoded form of m. The error names the field of the rule that Envoy would refuse.
func (d *routeBuilder) route(
	vs *model.VirtualService, rule *networkingv1.HTTPRoute, m *networkingv1.HTTPMatchRequest, match *routev3.RouteMatch,
) (*routev3.Route, error) {
	out := &routev3.Route{
		Name:       rule.GetName(),
		Match:      match,
		StatPrefix: m.GetStatPrefix(),
		Metadata:   originMetadata(&vs.Head),
	}
	if m.GetName() != "" {
		out.Name += "." + m.GetName()
	}
	ops := headerOperations(rule.GetHeaders())
	out.RequestHeadersToAdd, out.RequestHeadersToRemove = ops.request.add, ops.request.remove
	out.ResponseHeadersToAdd, out.ResponseHeadersToRemove = ops.response.add, ops.response.remove
	if err := d.setAction(out, rule, ops.authority); err != nil {
		return nil, err
	}
	if d.HTTP3 != 0 {
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: "alt-svc", Value: fmt.Sprintf(`h3=":%d"; ma=86400`, d.HTTP3)}})
	}
	out.Decorator = &routev3.Decorator{Operation: d.operation(vs, out, rule)}
	if err := d.setFilters(out, rule); err != nil {
		return nil, err
	}
	if err := validateFormats(out); err != nil {
		return nil, err
	}
	return out, out.ValidateAll()
}

// setAction sets the action of a route: redirect, direct response, or forwarding to clusters. The argument authority is
// the host that the rule's header operations set, or empty.
func (d *routeBuilder) setAction(out *routev3.Route, rule *networkingv1.HTTPRoute, authority string) error {
	switch {
	case rule.GetRedirect() != nil:
		action, err := d.redirect(rule.Redirect, out.Match)
		out.Action = &routev3.Route_Redirect{Redirect: action}
		return err
	case rule.GetDirectResponse() != nil:
		action, err := directResponse(rule.DirectResponse)
		out.Action = &routev3.Route_DirectResponse{DirectResponse: action}
		return err
	}
	action, err := d.forward(out, rule, authority)
	out.Action = &routev3.Route_Route{Route: action}
	return err
}

// forward returns the action that forwards to one or several clusters. It adds the header operations of a single
// destination to the route. With several destinations, the weighted clusters have the header operations.
func (d *routeBuilder) forward(out *routev3.Route, rule *networkingv1.HTTPRoute, authority string) (*routev3.RouteAction, error) {
	action := &routev3.RouteAction{RequestMirrorPolicies: d.mirrors(rule), AppendXForwardedHost: d.Proxy.ForwardedHost}
	setTimeout(action, rule.GetTimeout())
	if err := setRewrite(action, rule.GetRewrite()); err != nil {
		return nil, err
	}
	if a := rule.GetRewrite().GetAuthority(); a != "" {
		authority = a
	}
	hashed := false
	switch routes := rule.GetRoute(); len(routes) {
	case 0:
		return nil, errors.New("no route, redirect or directResponse")
	case 1:
		dest := d.resolve(routes[0].GetDestination())
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: clusterOf(dest)}
		hashed = addHash(action, dest)
		ops := headerOperations(routes[0].GetHeaders())
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, ops.request.add...)
		out.RequestHeadersToRemove = append(out.RequestHeadersToRemove, ops.request.remove...)
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, ops.response.add...)
		out.ResponseHeadersToRemove = append(out.ResponseHeadersToRemove, ops.response.remove...)
		if authority == "" {
			authority = ops.authority
		}
	default:
		clusters, err := d.weighted(action, routes)
		if err != nil {
			return nil, err
		}
		action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: clusters}}
	}
	if !model.FitsRequestLine(authority) {
		return nil, problem.Atf("rewrite.authority", "%q has spaces or control characters", authority)
	}
	if authority != "" {
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: authority}
	}
	policy := rule.GetRetries()
	if policy == nil {
		policy = d.meshRetries()
	}
	action.RetryPolicy = retryPolicy(policy, hashed)
	return action, nil
}

// weighted returns the clusters of several destinations, and adds their hash policies to action. A destination's share
// is its weight divided by the sum of the weights. Destinations of weight 0 are left out. weighted fails if the sum is
// 0 or exceeds 32 bits, or if a destination's operations set a host with spaces or control characters.
func (d *routeBuilder) weighted(
	action *routev3.RouteAction, routes []*networkingv1.HTTPRouteDestination,
) ([]*routev3.WeightedCluster_ClusterWeight, error) {
	var clusters []*routev3.WeightedCluster_ClusterWeight
	var total uint64
	for _, r := range routes {
		if r.GetWeight() <= 0 {
			continue
		}
		dest := d.resolve(r.GetDestination())
		addHash(action, dest)
		total += uint64(r.GetWeight())
		ops := headerOperations(r.GetHeaders())
		c := &routev3.WeightedCluster_ClusterWeight{
			Name:                    clusterOf(dest),
			Weight:                  wrapperspb.UInt32(uint32(r.GetWeight())),
			RequestHeadersToAdd:     ops.request.add,
			RequestHeadersToRemove:  ops.request.remove,
			ResponseHeadersToAdd:    ops.response.add,
			ResponseHeadersToRemove: ops.response.remove,
		}
		if !model.FitsRequestLine(ops.authority) {
			return nil, problem.Atf("route.headers", "host %q has spaces or control characters", ops.authority)
		}
		if ops.authority != "" {
			c.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{HostRewriteLiteral: ops.authority}
		}
		clusters = append(clusters, c)
	}
	if total == 0 || total > math.MaxUint32 {
		return nil, problem.Atf("route", "the sum of weights is %d, want 1 to %d", total, uint32(math.MaxUint32))
	}
	return clusters, nil
}

// resolve returns the Spec's Destination for a destination of a rule. If the Spec has no such Destination, resolve
// returns the zero Destination.
func (d *routeBuilder) resolve(dest *networkingv1.Destination) Destination {
	ref, _ := virtualservice.RefOf(dest)
	return d.destinations[ref]
}

// clusterOf returns the name of a destination's cluster. For an unresolved destination the name is BlackHoleCluster.
// Envoy answers requests to BlackHoleCluster with status 503, as for a missing cluster.
func clusterOf(dest Destination) string {
	if dest.Cluster == (xds.ClusterName{}) {
		return xds.BlackHole
	}
	return dest.Cluster.String()
}

// mirrors returns the clusters to which requests of a rule are mirrored. It leaves out unresolved destinations,
// destinations whose percentage is 0, and all entries of the field mirrors after the first model.MostMirrors.
func (d *routeBuilder) mirrors(rule *networkingv1.HTTPRoute) []*routev3.RouteAction_RequestMirrorPolicy {
	var out []*routev3.RouteAction_RequestMirrorPolicy
	add := func(dest *networkingv1.Destination, percentage *networkingv1.Percent, otherwise float64) {
		cluster := d.resolve(dest).Cluster
		empty := percentage != nil && percentage.GetValue() <= 0 || percentage == nil && otherwise <= 0
		if cluster == (xds.ClusterName{}) || empty {
			return
		}
		out = append(out, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster:         cluster.String(),
			RuntimeFraction: &corev3.RuntimeFractionalPercent{DefaultValue: fraction(percentage, otherwise)},
			TraceSampled:    wrapperspb.Bool(false),
			// As in Istio, the mirrored request keeps its host. By default, Envoy appends -shadow to the host, and no
			// service serves such a host.
			DisableShadowHostSuffixAppend: true,
		})
	}
	if rule.GetMirror() != nil {
		otherwise := 100.0
		if old := rule.GetMirrorPercent(); old != nil { //nolint:staticcheck // still in use
			otherwise = float64(old.GetValue())
		}
		add(rule.GetMirror(), rule.GetMirrorPercentage(), otherwise)
	}
	for _, m := range rule.GetMirrors()[:min(len(rule.GetMirrors()), model.MostMirrors)] {
		add(m.GetDestination(), m.GetPercentage(), 100)
	}
	return out
}

// setTimeout sets the timeout of requests. If timeout is nil, there is no limit. A deadline that a gRPC client states
// applies up to the same limit, because of the field max_grpc_timeout. Envoy warns that this field is deprecated
// (--component-log-level misc:error hides the warning). The newer field max_stream_duration would switch off the
// timeout for requests that are not gRPC.
func setTimeout(action *routev3.RouteAction, timeout *durationpb.Duration) {
	if timeout = duration(timeout); timeout == nil {
		timeout = &durationpb.Duration{}
	}
	action.Timeout = timeout
	action.MaxGrpcTimeout = timeout //nolint:staticcheck // see above
}

// duration returns d, or nil if d is missing, negative or out of range.
func duration(d *durationpb.Duration) *durationpb.Duration {
	if d == nil || d.CheckValid() != nil || d.AsDuration() < 0 {
		return nil
	}
	return d
}

// setRewrite sets the rewrite of the path. The error names the field with an invalid regular expression, or with a
// space or control character.
func setRewrite(action *routev3.RouteAction, rewrite *networkingv1.HTTPRewrite) error {
	if to := rewrite.GetUri(); !model.FitsRequestLine(to) {
		return problem.Atf("rewrite.uri", "%q has spaces or control characters", to)
	}
	if to := rewrite.GetUriRegexRewrite().GetRewrite(); !model.FitsRequestLine(to) {
		return problem.Atf("rewrite.uriRegexRewrite.rewrite", "%q has spaces or control characters", to)
	}
	if r := rewrite.GetUriRegexRewrite(); r != nil {
		pattern, err := regex(r.GetMatch())
		if err != nil {
			return problem.Within("rewrite.uriRegexRewrite.match", err)
		}
		action.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{Pattern: pattern, Substitution: r.GetRewrite()}
		return nil
	}
	action.PrefixRewrite = rewrite.GetUri()
	return nil
}

// operation returns the name of a route's spans: "host:port" and the matched path. Host and port are those of the
// destination, if the route forwards to exactly one destination and the Spec has it. In all other cases they are the
// VirtualService's name and the Spec's port.
func (d *routeBuilder) operation(vs *model.VirtualService, r *routev3.Route, rule *networkingv1.HTTPRoute) string {
	path := "/*"
	switch p := r.GetMatch().GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		path = p.Prefix + "*"
	case *routev3.RouteMatch_Path:
		path = p.Path
	case *routev3.RouteMatch_SafeRegex:
		path = p.SafeRegex.GetRegex()
	}
	if to := rule.GetRoute(); r.GetRoute() != nil && len(to) == 1 {
		if at := d.resolve(to[0].GetDestination()).Cluster; at != (xds.ClusterName{}) {
			return xds.VirtualHost(at.Host, at.Port) + path
		}
	}
	return xds.VirtualHost(vs.Key.Name, d.Port) + path
}

// originMetadata returns the metadata that names the VirtualService of a route, in the form that Istio's tools read.
func originMetadata(h *model.Head) *corev3.Metadata {
	path := "/apis/networking.istio.io/v1/namespaces/" + h.Key.Namespace + "/virtual-service/" + h.Key.Name
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"istio": {Fields: map[string]*structpb.Value{"config": structpb.NewStringValue(path)}},
	}}
}

// setFilters sets the route's configuration of the fault and CORS filters, if the proxy has them. The error names the
// field that Envoy would refuse.
func (d *routeBuilder) setFilters(out *routev3.Route, rule *networkingv1.HTTPRoute) error {
	filters := map[string]*anypb.Any{}
	if f := faultConfig(rule.GetFault()); f != nil && d.Caps.Has(xds.CapFault) {
		if err := f.ValidateAll(); err != nil {
			return problem.Within("fault", err)
		}
		filters[xds.FaultFilter] = xds.Any(f)
	}
	if rule.GetCorsPolicy() != nil && d.Caps.Has(xds.CapCORS) {
		c, err := corsConfig(rule.CorsPolicy)
		if err == nil {
			err = c.ValidateAll()
		}
		if err != nil {
			return problem.Within("corsPolicy", err)
		}
		filters["envoy.filters.http.cors"] = xds.Any(c)
	}
	if len(filters) > 0 {
		out.TypedPerFilterConfig = filters
	}
	return nil
}
