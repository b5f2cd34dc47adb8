package vhost

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// fieldVirtualHosts and fieldRoutes are the field numbers of RouteConfiguration.virtual_hosts and VirtualHost.routes.
const (
	fieldVirtualHosts = 2
	fieldRoutes       = 3
)

// Fragment encodes the virtual host as the field virtual_hosts of a RouteConfiguration. It leaves out patches, and
// single matches of rules, that Envoy would refuse. It also leaves out rules behind a rule that matches everything. If
// a patch removes the virtual host, the fragment has a name and no bytes. Fragment fails if the Spec has no domains, or
// if a string is not valid UTF-8. It fails if a domain or the patched virtual host violates a constraint of Envoy's
// API. With patches, it also fails if the encoded virtual host does not decode. The result may share encoded routes
// with other fragments, and is read-only.
func (s Spec) Fragment() (*xds.Fragment, error) { return s.FragmentInPieces(func() {}) }

// FragmentInPieces returns the result and the errors of Fragment. It calls pause between small pieces of the work, so
// that the caller can do other work. The function pause must not be nil.
func (s Spec) FragmentInPieces(pause func()) (*xds.Fragment, error) {
	f, err := s.buildUnpatched(pause)
	if err != nil || s.Patches.Len() == 0 {
		return f, err
	}
	pause()
	return patchEncoded(f, s.Patches, pause)
}

// buildUnpatched returns the virtual host without patches: the joined fragments of its rules. It calls pause after
// every sixteenth rule.
func (s Spec) buildUnpatched(pause func()) (*xds.Fragment, error) {
	vh := &routev3.VirtualHost{
		Name:                       xds.VirtualHost(s.Host, s.Port),
		Domains:                    slices.Clone(s.Domains.All()),
		IncludeRequestAttemptCount: !s.Proxy.NoAttempts && (s.Rules.Len() > 0 || !s.NoDefault || s.TLSOnly),
	}
	var parts []*xds.Fragment
	d := newRouteBuilder(s)
	if s.TLSOnly {
		vh.RequireTls = routev3.VirtualHost_ALL
	}
	if s.GRPCWeb {
		vh.TypedPerFilterConfig = map[string]*anypb.Any{xds.GRPCWebFilter: enabledFilter}
	}
	switch {
	case s.Misdirected:
		vh.Routes, vh.TypedPerFilterConfig = misdirected()
	case s.Rules.Len() == 0 && !s.NoDefault:
		vh.Routes = d.defaultRoutes()
	}
	if err := vh.ValidateAll(); err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", vh.Name, err)
	}
	for r := range d.reachable() {
		part, err := d.fragment(r)
		if err != nil {
			return nil, err
		}
		if parts = append(parts, part); len(parts)%16 == 0 {
			pause()
		}
	}
	return xds.JoinFragment(vh.Name, fieldVirtualHosts, vh, fieldRoutes, parts)
}

// decode decodes the virtual host of a fragment, which must have bytes.
func decode(f *xds.Fragment) (*routev3.VirtualHost, error) {
	rc := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(f.Bytes, rc); err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", f.Name, err)
	}
	return rc.VirtualHosts[0], nil
}

// unresolved is a regular expression for hosts that the proxy does not resolve: IP addresses, and the metadata server
// from which machines of a cloud fetch credentials. The address of that server is link-local, and the DNS cache refuses
// link-local addresses (dnscache.Unknown).
const unresolved = `([0-9]+(\.[0-9]+){3}|\[[^\]]*\]|metadata\.google\.internal\.?)(:[0-9]*)?`

// Fragment encodes the virtual host as the field virtual_hosts of a RouteConfiguration. The virtual host block_all
// answers requests with status 502. The virtual host allow_any sends them to PassthroughCluster, or to the cluster
// EgressProxy if it is set. The virtual host allow_any_dynamic_dns sends them to AllowAnyDynamicDNSCluster. If the
// field Sent is set, it sends requests to IP addresses and to a cloud's metadata server to PassthroughCluster (or
// EgressProxy) instead. See
// https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-OutboundTrafficPolicy-Mode. Patches
// that Envoy would refuse are left out. If a patch removes the virtual host, the fragment has a name and no bytes.
// Fragment fails if the patched virtual host violates a constraint of Envoy's API, or if a string is not valid UTF-8.
func (s CatchAll) Fragment() (*xds.Fragment, error) { return patchAndEncode(s.build(), s.Patches) }

// build returns the virtual host without patches.
func (s CatchAll) build() *routev3.VirtualHost {
	vh := &routev3.VirtualHost{Name: s.Name(), Domains: []string{"*"}, IncludeRequestAttemptCount: !s.Proxy.NoAttempts}
	route := &routev3.Route{Name: xds.BlockAll, Match: matchAll(), Action: &routev3.Route_DirectResponse{
		DirectResponse: &routev3.DirectResponseAction{Status: 502},
	}}
	if s.Passthrough {
		route.Name, route.Action = xds.AllowAny, s.passThrough(cmp.Or(s.EgressProxy, xds.Passthrough))
	}
	vh.Routes = []*routev3.Route{route}
	if s.byName() {
		byName := &routev3.Route{Name: xds.AllowAnyByName, Match: matchAll(), Action: s.passThrough(xds.AllowAnyDynamic)}
		if vh.Routes = append(vh.Routes, byName); !s.Sent {
			vh.Routes = vh.Routes[1:]
		}
		regex := &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: unresolved}}
		route.Match.Headers = []*routev3.HeaderMatcher{{
			Name: ":authority",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
				StringMatch: &matcherv3.StringMatcher{MatchPattern: regex}},
		}}
	}
	return vh
}

// passThrough returns an action that forwards requests to a cluster, without a timeout.
func (s CatchAll) passThrough(cluster string) *routev3.Route_Route {
	action := &routev3.RouteAction{
		ClusterSpecifier:     &routev3.RouteAction_Cluster{Cluster: cluster},
		AppendXForwardedHost: s.Proxy.ForwardedHost,
	}
	setTimeout(action, nil)
	return &routev3.Route_Route{Route: action}
}

// Fragment encodes the virtual host in the patch's value as the field virtual_hosts of a RouteConfiguration. The error
// names the patch, and the field that cannot be decoded or that Envoy would refuse.
func (s Added) Fragment() (*xds.Fragment, error) {
	vh, err := s.build()
	if err != nil {
		return nil, err
	}
	return xds.EncodeFragment(vh.Name, fieldVirtualHosts, vh)
}

// Domains returns the domains of the added virtual host. It returns nil if the patch's value is not a valid virtual
// host. The planner uses the domains to keep domains unique within a route configuration. The caller owns the slice.
func (s Added) Domains() []string {
	vh, err := s.build()
	if err != nil {
		return nil
	}
	return vh.Domains
}

// build decodes and validates the patch's value.
func (s Added) build() (*routev3.VirtualHost, error) {
	vh := &routev3.VirtualHost{}
	if err := patch.Decode(s.Patch, vh); err != nil {
		return nil, err
	}
	if err := vh.ValidateAll(); err != nil {
		return nil, patch.Refused(s.Patch, err)
	}
	return vh, nil
}

// patchAndEncode applies patches to a virtual host and encodes the result. If a patch removes the virtual host, the
// fragment has no bytes. It fails if the result violates a constraint of Envoy's API, or if a string is not valid
// UTF-8.
func patchAndEncode(vh *routev3.VirtualHost, patches intern.List[model.Patch]) (*xds.Fragment, error) {
	name := vh.Name
	if vh, _ = patch.ApplyVirtualHost(vh, patches.All()); vh == nil {
		return removed(name), nil
	}
	if err := vh.ValidateAll(); err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", name, err)
	}
	return xds.EncodeFragment(name, fieldVirtualHosts, vh)
}

// delegateOf returns a phrase that names the delegate VirtualService of a merged route, or "" for other routes.
func delegateOf(rule *networkingv1.HTTPRoute) string {
	if d := rule.GetDelegate(); d != nil {
		return " of its delegate " + d.GetNamespace() + "/" + d.GetName()
	}
	return ""
}

// Problems returns an error for each match in a VirtualService's http rules whose route Envoy would refuse. It returns
// nil if there are no such matches. Fragment leaves out these routes. A rule without matches counts as one match. The
// proxy is assumed to have all capabilities. Each error is a model.Problem of the VirtualService that names the rule
// and the reason, and the field if it is known.
func Problems(vs *model.VirtualService) []error {
	d := newRouteBuilder(Spec{Caps: ^xds.Caps(0)})
	var out []error
	// Merging delegates shifts the indices of rules. So errors about a merged VirtualService name the route instead.
	merged := slices.ContainsFunc(vs.Spec.GetHttp(), func(h *networkingv1.HTTPRoute) bool { return h.GetDelegate() != nil })
	for i, rule := range vs.Spec.GetHttp() {
		at, of := fmt.Sprintf("spec.http[%d]", i), ".match[%d]"
		if merged {
			at, of = fmt.Sprintf("spec.http: route %q%s", rule.GetName(), delegateOf(rule)), ", match[%d]"
		}
		for j, m := range matchesOf(rule) {
			match, err := encodeMatch(m)
			if err != nil {
				out = append(out, model.Fault(vs.Key, problem.Invalid, at+fmt.Sprintf(of, j), err))
			} else if _, err := d.route(vs, rule, m, match); err != nil {
				out = append(out, model.Fault(vs.Key, problem.Invalid, at, err))
			}
		}
	}
	return out
}

// defaultRoutes returns the only route of a host without a VirtualService. The route sends all requests to the
// service.
func (d *routeBuilder) defaultRoutes() []*routev3.Route {
	var dest Destination
	if all := d.Destinations.All(); len(all) > 0 {
		dest = all[0]
	}
	action := &routev3.RouteAction{
		ClusterSpecifier:     &routev3.RouteAction_Cluster{Cluster: clusterOf(dest)},
		AppendXForwardedHost: d.Proxy.ForwardedHost,
	}
	setTimeout(action, nil)
	action.RetryPolicy = retryPolicy(d.meshRetries(), false)
	addHash(action, dest)
	return []*routev3.Route{{
		Name:      "default",
		Match:     matchAll(),
		Decorator: &routev3.Decorator{Operation: xds.VirtualHost(d.Host, d.Port) + "/*"},
		Action:    &routev3.Route_Route{Route: action},
	}}
}
