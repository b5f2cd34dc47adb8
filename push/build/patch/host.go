package patch

import (
	"crypto/rand"

	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/store/model"
)

// RoutePatches applies the patches of HTTP_ROUTE to the routes of one virtual host: Change for each route, then Add.
type RoutePatches struct {
	*omissions
	changes []model.Patch // merge into routes or remove them
	adds    []model.Patch
	kinds   map[string]kinds // the kinds of routes that changes match, by the name in the match; empty: any name
}

// kinds is a set of kinds of actions: the bit of each RouteMatch_Action.
type kinds uint8

// HeadOf applies the patches of VIRTUAL_HOST to a virtual host without its routes; nil if one removes it. The routes of
// the result come from patches. They follow the routes of the virtual host, or replace them if keeps is false. The
// caller must own head.
func HeadOf(head *routev3.VirtualHost, patches []model.Patch) (vh *routev3.VirtualHost, keeps bool) {
	itself := filterPatches(patches, changesHost)
	if len(itself) == 0 {
		return head, true
	}
	// One route stands for all, so that the cost of a patch does not grow with the number of routes.
	head.Routes = []*routev3.Route{{Name: placeholder, Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}}}}
	l := &omissions{resource: "virtual host " + head.GetName()}
	vh = applyToHost(l, head, itself)
	if routes := vh.GetRoutes(); len(routes) > 0 && routes[0].GetName() == placeholder {
		keeps, vh.Routes = true, routes[1:]
	}
	return vh, keeps
}

// placeholder is the name of the route that stands for all routes of a virtual host. No patch can state it.
var placeholder = rand.Text()

// changesHost reports whether a patch is one of VIRTUAL_HOST.
func changesHost(p model.Patch) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_VIRTUAL_HOST
}

// applyToHost applies patches of VIRTUAL_HOST, and leaves out those whose result Envoy would refuse.
func applyToHost(l *omissions, vh *routev3.VirtualHost, patches []model.Patch) *routev3.VirtualHost {
	return applyAccepted(l, patches, func(some []model.Patch) (*routev3.VirtualHost, []error) {
		return changeVirtualHost(vh, l.resource, some)
	})
}

// RoutesOf returns the patches of HTTP_ROUTE that match a virtual host by its name and domains. The routes of vh are
// ignored.
func RoutesOf(vh *routev3.VirtualHost, patches []model.Patch) *RoutePatches {
	return routesOf(&omissions{resource: "virtual host " + vh.GetName()}, vh, patches)
}

// routesOf is RoutesOf that records the patches that are left out in l.
func routesOf(l *omissions, vh *routev3.VirtualHost, patches []model.Patch) *RoutePatches {
	r := &RoutePatches{omissions: l, kinds: map[string]kinds{}}
	for _, p := range patches {
		switch {
		case p.Config().GetApplyTo() != networkingv1.EnvoyFilter_HTTP_ROUTE, !namesVirtualHost(p, vh.GetName()), !hasDomain(p, vh):
		case merges(p) || operation(p) == networkingv1.EnvoyFilter_Patch_REMOVE:
			r.changes = append(r.changes, p)
			r.kinds[routeMatch(p).GetName()] |= 1 << routeMatch(p).GetAction()
		default:
			r.adds = append(r.adds, p)
		}
	}
	return r
}

// Empty reports whether no patch is for the routes of the virtual host.
func (r *RoutePatches) Empty() bool { return len(r.changes)+len(r.adds) == 0 }

// Matches reports whether a patch matches a route of a name and kind of action, so that Change may change or remove it.
// Its cost does not grow with the number of patches.
func (r *RoutePatches) Matches(route *routev3.Route) bool {
	const all = kinds(1) << networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY
	return (r.kinds[""]|r.kinds[route.GetName()])&(all|1<<kindOf(route)) != 0
}

// Change returns a route with the patches that match it; nil if one removes it. The result is the route itself if no
// patch matches, and else a copy.
func (r *RoutePatches) Change(route *routev3.Route) *routev3.Route {
	if !r.Matches(route) {
		return route
	}
	return applyAccepted(r.omissions, r.changes, func(some []model.Patch) (*routev3.Route, []error) {
		return changeRoute(route, r.resource, some)
	})
}

// Add inserts the routes that patches add, and returns the routes. It reads the names and the kinds of actions of the
// routes only. The added routes are shared: the caller must not change them. pause is called after each.
func (r *RoutePatches) Add(routes []*routev3.Route, pause func()) []*routev3.Route {
	for _, p := range r.adds {
		routes = addRoute(r.omissions, routes, p)
		pause()
	}
	return routes
}
