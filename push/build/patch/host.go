package patch

import (
	"crypto/rand"

	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/store/model"
)

// RoutePatches contains the patches with the applyTo HTTP_ROUTE that match one virtual host. RoutesOf creates it. The
// caller calls Change for each route of the virtual host, and then Add once. A RoutePatches is not safe for concurrent
// use.
type RoutePatches struct {
	*omissions
	changes []model.Patch    // patches that merge into routes or remove them
	adds    []model.Patch    // patches that add routes
	kinds   map[string]kinds // types of actions that changes match, by route name; key "": patches without a route name
}

// kinds is a set of types of route actions, with one bit for each value of RouteMatch_Action.
type kinds uint8

// HeadOf applies patches to head, a virtual host without its routes. It applies only patches with the applyTo
// VIRTUAL_HOST that match the name and domains of head. If a patch removes the virtual host, HeadOf returns nil and
// false. The returned virtual host has only the routes that patches state. If the result keeps is true, these routes
// come after the original routes of the virtual host. If it is false, they replace the original routes. The returned
// virtual host may be head itself. HeadOf may change head, so the caller must own head.
//
// A patch that does not decode, or whose result Envoy would refuse, is left out without an error. ApplyVirtualHost
// reports such patches.
func HeadOf(head *routev3.VirtualHost, patches []model.Patch) (vh *routev3.VirtualHost, keeps bool) {
	itself := filterPatches(patches, changesHost)
	if len(itself) == 0 {
		return head, true
	}
	// One placeholder represents all routes of the virtual host. The cost of a patch thus does not depend on the number
	// of routes.
	head.Routes = []*routev3.Route{{Name: placeholder, Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}}}}
	l := &omissions{resource: "virtual host " + head.GetName()}
	vh = applyToHost(l, head, itself)
	if routes := vh.GetRoutes(); len(routes) > 0 && routes[0].GetName() == placeholder {
		keeps, vh.Routes = true, routes[1:]
	}
	return vh, keeps
}

// placeholder is the name of the route by which HeadOf represents all routes of a virtual host. No patch can state the
// name, because it is random.
var placeholder = rand.Text()

// changesHost reports whether the applyTo of a patch is VIRTUAL_HOST.
func changesHost(p model.Patch) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_VIRTUAL_HOST
}

// applyToHost returns a copy of vh to which the patches of VIRTUAL_HOST are applied, or nil if a patch removes vh.
// Patches whose result Envoy would refuse are left out and recorded in l.
func applyToHost(l *omissions, vh *routev3.VirtualHost, patches []model.Patch) *routev3.VirtualHost {
	return applyAccepted(l, patches, func(some []model.Patch) (*routev3.VirtualHost, []error) {
		return changeVirtualHost(vh, l.resource, some, l.trace)
	})
}

// RoutesOf returns the patches of HTTP_ROUTE that match the name and domains of a virtual host. The result is never
// nil, but may be Empty. RoutesOf ignores the routes of vh.
func RoutesOf(vh *routev3.VirtualHost, patches []model.Patch) *RoutePatches {
	return routesOf(&omissions{resource: "virtual host " + vh.GetName()}, vh, patches)
}

// routesOf returns the same RoutePatches as RoutesOf. The methods of the result record in l the patches that they leave
// out.
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

// Empty reports whether r contains no patches.
func (r *RoutePatches) Empty() bool { return len(r.changes)+len(r.adds) == 0 }

// Matches reports whether a patch that changes or removes routes may match the route's name and type of action. If the
// result is false, Change returns the route unchanged. Matches ignores other properties of the route, and patches that
// add routes. The cost of Matches does not grow with the number of patches.
func (r *RoutePatches) Matches(route *routev3.Route) bool {
	const all = kinds(1) << networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY
	return (r.kinds[""]|r.kinds[route.GetName()])&(all|1<<kindOf(route)) != 0
}

// Change returns a copy of a route to which the matching patches are applied, or nil if a patch removes the route. If
// Matches returns false for the route, Change returns the route itself. Patches that do not decode, or whose result
// Envoy would refuse, are left out. Change does not modify its argument.
func (r *RoutePatches) Change(route *routev3.Route) *routev3.Route {
	if !r.Matches(route) {
		return route
	}
	return applyAccepted(r.omissions, r.changes, func(some []model.Patch) (*routev3.Route, []error) {
		return changeRoute(route, r.resource, some, r.trace)
	})
}

// Add inserts the routes that patches add into the list routes, and returns the list. Patches with invalid values are
// left out. Add may change the array of the list, but not the routes in the list. Of these routes, Add reads only the
// names and the types of the actions. The added routes are shared with other resources, and read-only. Add calls the
// function pause, which must not be nil, after each patch that may add a route.
func (r *RoutePatches) Add(routes []*routev3.Route, pause func()) []*routev3.Route {
	for _, p := range r.adds {
		routes = addRoute(r.omissions, routes, p)
		pause()
	}
	return routes
}
