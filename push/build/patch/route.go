package patch

import (
	"slices"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/store/model"
)

// RouteConfig is what patches are matched with of a route configuration.
type RouteConfig struct {
	Name    string
	Port    uint32                                // of its listener; 0: there is no one port
	Context networkingv1.EnvoyFilter_PatchContext // SIDECAR_OUTBOUND, SIDECAR_INBOUND or GATEWAY
}

// RouteConfigMatches says whether a patch of ROUTE_CONFIGURATION, VIRTUAL_HOST or HTTP_ROUTE is for a route configuration. What a match
// says of gateways is not looked at
// (https://istio.io/latest/docs/reference/config/networking/envoy-filter/#EnvoyFilter-RouteConfigurationMatch).
func RouteConfigMatches(p model.Patch, rc RouteConfig) bool {
	config := p.Config()
	switch config.GetApplyTo() {
	case networkingv1.EnvoyFilter_ROUTE_CONFIGURATION, networkingv1.EnvoyFilter_VIRTUAL_HOST, networkingv1.EnvoyFilter_HTTP_ROUTE:
	default:
		return false
	}
	if c := config.GetMatch().GetContext(); c != networkingv1.EnvoyFilter_ANY && c != rc.Context {
		return false
	}
	m := config.GetMatch().GetRouteConfiguration()
	return (m.GetPortNumber() == 0 || m.GetPortNumber() == rc.Port) && (m.GetName() == "" || m.GetName() == rc.Name)
}

// VirtualHostMatches says whether a patch of VIRTUAL_HOST (one that merges, REMOVE, REPLACE) or HTTP_ROUTE is for a virtual host in
// such a route configuration, and so belongs into its Spec.
func VirtualHostMatches(p model.Patch, rc RouteConfig, vhostName string) bool {
	switch p.Config().GetApplyTo() {
	case networkingv1.EnvoyFilter_VIRTUAL_HOST:
		if operation(p) == networkingv1.EnvoyFilter_Patch_ADD {
			return false
		}
	case networkingv1.EnvoyFilter_HTTP_ROUTE:
	default:
		return false
	}
	return RouteConfigMatches(p, rc) && namesVirtualHost(p, vhostName)
}

// AddsVirtualHost says whether a patch adds a virtual host to such a route configuration.
func AddsVirtualHost(p model.Patch, rc RouteConfig) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_VIRTUAL_HOST &&
		operation(p) == networkingv1.EnvoyFilter_Patch_ADD && RouteConfigMatches(p, rc)
}

// MergesRouteConfig says whether a patch is merged into the head of such a route configuration.
func MergesRouteConfig(p model.Patch, rc RouteConfig) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_ROUTE_CONFIGURATION &&
		merges(p) && RouteConfigMatches(p, rc)
}

// ApplyRouteConfig merges the patches of ROUTE_CONFIGURATION, in order, and keeps the name: Envoy asked for it. A patch
// that does not decode, or that makes of it what Envoy would refuse, is left out. The errors are these patches, each a Left, and the names that
// patches state.
func ApplyRouteConfig(rc *routev3.RouteConfiguration, patches []model.Patch) (*routev3.RouteConfiguration, []error) {
	patches = only(patches, func(p model.Patch) bool {
		return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_ROUTE_CONFIGURATION && merges(p)
	})
	if len(patches) == 0 {
		return rc, nil
	}
	l := leaving{resource: "route configuration " + rc.GetName()}
	merged := keep(&l, patches, func(some []model.Patch) (*routev3.RouteConfiguration, []error) {
		drawn, next := leaving{resource: l.resource}, proto.CloneOf(rc)
		for _, p := range some {
			next = mergedInto(&drawn, p, next)
			drawn.faults = append(drawn.faults, keepName(p, "route configuration", &next.Name, rc.GetName())...)
		}
		return next, drawn.faults
	})
	return merged, l.faults
}

// ApplyVirtualHost applies the patches of VIRTUAL_HOST and then those of HTTP_ROUTE that name this virtual host, in
// order; nil where one of them removes it. What is given must be no one else's: it may be changed. A patch that does not
// decode, or that makes of it what Envoy would refuse, is left out: the errors are these patches, each a Left.
func ApplyVirtualHost(vh *routev3.VirtualHost, patches []model.Patch) (*routev3.VirtualHost, []error) {
	l := &leaving{resource: "virtual host " + vh.GetName()}
	itself := only(patches, func(p model.Patch) bool { return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_VIRTUAL_HOST })
	if len(itself) > 0 {
		vh = keep(l, itself, func(some []model.Patch) (*routev3.VirtualHost, []error) {
			return changeVirtualHost(vh, l.resource, some)
		})
	}
	if vh != nil {
		vh.Routes = applyRoutes(l, vh, patches)
	}
	return vh, l.faults
}

// changeVirtualHost is a copy of a virtual host with the patches of VIRTUAL_HOST that are for it; nil where one removes
// it.
func changeVirtualHost(vh *routev3.VirtualHost, resource string, patches []model.Patch) (*routev3.VirtualHost, []error) {
	l := leaving{resource: resource}
	vh = proto.CloneOf(vh)
	for _, p := range patches {
		if !namesVirtualHost(p, vh.GetName()) || !hasDomain(p, vh) {
			continue
		}
		switch op := operation(p); {
		case op == networkingv1.EnvoyFilter_Patch_REMOVE:
			return nil, l.faults
		case merges(p):
			vh = mergedInto(&l, p, vh)
		case op == networkingv1.EnvoyFilter_Patch_REPLACE:
			if value, err := whole[*routev3.VirtualHost](p); !l.out(p, err) {
				vh = proto.CloneOf(value)
			}
		default:
			continue
		}
		vh.Domains = unique(vh.Domains)
	}
	return vh, l.faults
}

// only is those of the patches for which something holds.
func only(patches []model.Patch, holds func(model.Patch) bool) (some []model.Patch) {
	for _, p := range patches {
		if holds(p) {
			some = append(some, p)
		}
	}
	return some
}

// applyRoutes changes and removes routes one by one, and then adds: a patch that adds does not see what a later one adds,
// and no added route is changed.
func applyRoutes(l *leaving, vh *routev3.VirtualHost, patches []model.Patch) []*routev3.Route {
	routes := vh.GetRoutes()
	patches = only(patches, func(p model.Patch) bool {
		return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_HTTP_ROUTE && namesVirtualHost(p, vh.GetName()) && hasDomain(p, vh)
	})
	if len(patches) == 0 {
		return routes
	}
	changes := only(patches, func(p model.Patch) bool { return merges(p) || operation(p) == networkingv1.EnvoyFilter_Patch_REMOVE })
	kept := make([]*routev3.Route, 0, len(routes))
	for _, r := range routes {
		if len(changes) > 0 {
			r = keep(l, changes, func(some []model.Patch) (*routev3.Route, []error) { return changeRoute(r, l.resource, some) })
		}
		if r != nil {
			kept = append(kept, r)
		}
	}
	for _, p := range patches {
		kept = addRoute(l, kept, p)
	}
	return kept
}

// changeRoute is a copy of a route with the patches that are for it; nil where one removes it.
func changeRoute(r *routev3.Route, resource string, patches []model.Patch) (*routev3.Route, []error) {
	l := leaving{resource: resource}
	r = proto.CloneOf(r)
	for _, p := range patches {
		switch {
		case !matchesRoute(p, r):
		case merges(p):
			r = mergedInto(&l, p, r)
		default:
			return nil, l.faults
		}
	}
	return r, l.faults
}

// addRoute: with a route match an insertion goes to the first route that matches, and nowhere where none does; without,
// before is first and after is last.
func addRoute(l *leaving, routes []*routev3.Route, p model.Patch) []*routev3.Route {
	at := 0
	if routeMatch(p) != nil {
		at = slices.IndexFunc(routes, func(r *routev3.Route) bool { return matchesRoute(p, r) })
	}
	switch operation(p) {
	case networkingv1.EnvoyFilter_Patch_ADD:
		at = len(routes)
	case networkingv1.EnvoyFilter_Patch_INSERT_AFTER:
		if routeMatch(p) == nil {
			at = len(routes)
		} else if at >= 0 {
			at++
		}
	case networkingv1.EnvoyFilter_Patch_INSERT_BEFORE:
	case networkingv1.EnvoyFilter_Patch_INSERT_FIRST:
		at = min(at, 0)
	default:
		return routes
	}
	if at < 0 {
		return routes
	}
	value, err := whole[*routev3.Route](p)
	if l.out(p, err) {
		return routes
	}
	return slices.Insert(routes, at, value)
}

func operation(p model.Patch) networkingv1.EnvoyFilter_Patch_Operation {
	return p.Config().GetPatch().GetOperation()
}

func namesVirtualHost(p model.Patch, vhost string) bool {
	name := p.Config().GetMatch().GetRouteConfiguration().GetVhost().GetName()
	return name == "" || name == vhost
}

// hasDomain says whether a virtual host has the domain that a patch asks for.
func hasDomain(p model.Patch, vh *routev3.VirtualHost) bool {
	domain := p.Config().GetMatch().GetRouteConfiguration().GetVhost().GetDomainName()
	return domain == "" || slices.Contains(vh.GetDomains(), domain)
}

func routeMatch(p model.Patch) *networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch {
	return p.Config().GetMatch().GetRouteConfiguration().GetVhost().GetRoute()
}

func matchesRoute(p model.Patch, r *routev3.Route) bool {
	m := routeMatch(p)
	if m.GetName() != "" && m.GetName() != r.GetName() {
		return false
	}
	want := m.GetAction()
	if want == networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY {
		return true
	}
	switch r.GetAction().(type) {
	case *routev3.Route_Route:
		return want == networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE
	case *routev3.Route_Redirect:
		return want == networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT
	case *routev3.Route_DirectResponse:
		return want == networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE
	}
	return false
}

// unique keeps the first of equal domains: Envoy refuses the second.
func unique(domains []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(domains, func(d string) bool {
		again := seen[d]
		seen[d] = true
		return again
	})
}
