package vhost

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// The fields RouteConfiguration.virtual_hosts and VirtualHost.routes.
const (
	fieldVirtualHosts = 2
	fieldRoutes       = 3
)

// Fragment is the virtual host as a field of a RouteConfiguration. It has no bytes if a patch removes the virtual
// host; a rope may hold such a fragment. An error is a fault of the Spec (no domains), never of one of its rules: a
// rule that Envoy would refuse is left out, and the other rules stay.
func (s Spec) Fragment() (*xds.Fragment, error) {
	f, err := s.unpatched()
	if err != nil || s.Patches.Len() == 0 {
		return f, err
	}
	vh, err := decode(f)
	if err != nil {
		return nil, err
	}
	patched, err := seal(vh, s.Patches)
	if err == nil {
		patched.Parts = f.Parts
	}
	return patched, err
}

// unpatched is the virtual host before any patch: the fragments of its rules, joined.
func (s Spec) unpatched() (*xds.Fragment, error) {
	vh := &routev3.VirtualHost{
		Name:                       xds.VirtualHost(s.Host, s.Port),
		Domains:                    slices.Clone(s.Domains.All()),
		IncludeRequestAttemptCount: !s.Proxy.NoAttempts,
	}
	var parts []*xds.Fragment
	d := newDrawing(s)
	if s.Rules.Len() == 0 {
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
		parts = append(parts, part)
	}
	return xds.JoinFragment(vh.Name, fieldVirtualHosts, vh, fieldRoutes, parts)
}

// decode is the virtual host of a fragment.
func decode(f *xds.Fragment) (*routev3.VirtualHost, error) {
	rc := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(f.Bytes, rc); err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", f.Name, err)
	}
	return rc.VirtualHosts[0], nil
}

// unresolved are the hosts of requests that have no name to resolve: addresses; and the name by which clouds'
// machines find their credentials, whose address is of the link, which names that are resolved here never lead to
// (dnscache.Unknown).
const unresolved = `([0-9]+(\.[0-9]+){3}|\[[^\]]*\]|metadata\.google\.internal\.?)(:[0-9]*)?`

// Fragment is the virtual host allow_any, to PassthroughCluster or the egress proxy's, allow_any_dynamic_dns, to
// AllowAnyDynamicDNSCluster, or block_all, which answers 502
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-OutboundTrafficPolicy-Mode). The
// error: Envoy would refuse it as EnvoyFilters have patched it.
func (s CatchAll) Fragment() (*xds.Fragment, error) { return seal(s.draw(), s.Patches) }

// draw is the virtual host before any patch.
func (s CatchAll) draw() *routev3.VirtualHost {
	vh := &routev3.VirtualHost{Name: s.Name(), Domains: []string{"*"}, IncludeRequestAttemptCount: !s.Proxy.NoAttempts}
	route := &routev3.Route{Name: xds.BlockAll, Match: everything(), Action: &routev3.Route_DirectResponse{
		DirectResponse: &routev3.DirectResponseAction{Status: 502},
	}}
	if s.Passthrough {
		route.Name, route.Action = xds.AllowAny, s.pass(cmp.Or(s.EgressProxy, xds.Passthrough))
	}
	vh.Routes = []*routev3.Route{route}
	if s.byName() {
		byName := &routev3.Route{Name: xds.AllowAnyByName, Match: everything(), Action: s.pass(xds.AllowAnyDynamic)}
		if vh.Routes = append(vh.Routes, byName); !s.Sent {
			vh.Routes = vh.Routes[1:]
		}
		route.Match.Headers = []*routev3.HeaderMatcher{{Name: ":authority", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
			StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: unresolved}}}}}}
	}
	return vh
}

// pass is the action of what passes through to a cluster.
func (s CatchAll) pass(cluster string) *routev3.Route_Route {
	action := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}, AppendXForwardedHost: s.Proxy.ForwardedHost}
	setTimeout(action, nil)
	return &routev3.Route_Route{Route: action}
}

// Fragment is the patch's value. An error names the patch whose virtual host Envoy would refuse.
func (s Added) Fragment() (*xds.Fragment, error) {
	vh, err := s.draw()
	if err != nil {
		return nil, err
	}
	return xds.EncodeFragment(vh.Name, fieldVirtualHosts, vh)
}

// Domains lists the domains that the patch adds: the plan has to keep them unique within a route configuration. None
// where the patch is no virtual host.
func (s Added) Domains() []string {
	vh, err := s.draw()
	if err != nil {
		return nil
	}
	return vh.Domains
}

func (s Added) draw() (*routev3.VirtualHost, error) {
	vh := &routev3.VirtualHost{}
	if err := patch.Decode(s.Patch, vh); err != nil {
		return nil, err
	}
	if err := vh.ValidateAll(); err != nil {
		return nil, patch.Refused(s.Patch, err)
	}
	return vh, nil
}

func seal(vh *routev3.VirtualHost, patches intern.List[model.Patch]) (*xds.Fragment, error) {
	name := vh.Name
	if vh, _ = patch.ApplyVirtualHost(vh, patches.All()); vh == nil {
		sum := sha256.Sum256([]byte("removed " + name))
		return &xds.Fragment{Name: name, Hash: xds.Hash(sum[:16])}, nil
	}
	if err := vh.ValidateAll(); err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", name, err)
	}
	return xds.EncodeFragment(name, fieldVirtualHosts, vh)
}

// delegateOf says which VirtualService a route was merged from; empty: from none.
func delegateOf(rule *networkingv1.HTTPRoute) string {
	if d := rule.GetDelegate(); d != nil {
		return " of its delegate " + d.GetNamespace() + "/" + d.GetName()
	}
	return ""
}

// Problems says which http rules of a virtual service Fragment leaves out because Envoy would refuse them, and why: for
// whoever shows problems to users. Each error names the virtual service and the rule.
func Problems(vs *model.VirtualService) []error {
	d := newDrawing(Spec{Caps: ^xds.Caps(0)})
	var out []error
	// With the routes of delegates among them, their places are no longer those that the object has.
	merged := slices.ContainsFunc(vs.Spec.GetHttp(), func(h *networkingv1.HTTPRoute) bool { return h.GetDelegate() != nil })
	for i, rule := range vs.Spec.GetHttp() {
		at, of := fmt.Sprintf("spec.http[%d]", i), ".match[%d]"
		if merged {
			at, of = fmt.Sprintf("spec.http: route %q%s", rule.GetName(), delegateOf(rule)), ", match[%d]"
		}
		for j, m := range matchesOf(rule) {
			match, err := drawMatch(m)
			if err != nil {
				out = append(out, model.Fault(vs.Key, problem.Invalid, at+fmt.Sprintf(of, j), err))
			} else if _, err := d.route(vs, rule, m, match); err != nil {
				out = append(out, model.Fault(vs.Key, problem.Invalid, at, err))
			}
		}
	}
	return out
}

// defaultRoutes is the one route of a host without a virtual service.
func (d *drawing) defaultRoutes() []*routev3.Route {
	var dest Destination
	if all := d.Destinations.All(); len(all) > 0 {
		dest = all[0]
	}
	action := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: clusterOf(dest)}, AppendXForwardedHost: d.Proxy.ForwardedHost}
	setTimeout(action, nil)
	action.RetryPolicy = drawRetries(d.meshRetries(), false)
	addHash(action, dest)
	return []*routev3.Route{{
		Name:      "default",
		Match:     everything(),
		Decorator: &routev3.Decorator{Operation: xds.VirtualHost(d.Host, d.Port) + "/*"},
		Action:    &routev3.Route_Route{Route: action},
	}}
}
