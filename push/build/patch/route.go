package patch

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// RouteConfig contains the properties of a route configuration that patches match. It is comparable.
type RouteConfig struct {
	Name    string                                // name of the route configuration
	Port    uint32                                // port of the listener; 0: there is no single port
	Context networkingv1.EnvoyFilter_PatchContext // SIDECAR_OUTBOUND, SIDECAR_INBOUND or GATEWAY
	// ServerPorts are the ports that the servers of a gateway state and that Services map to Port. A match may state
	// such a port in place of Port.
	ServerPorts intern.List[uint32]
}

// RouteConfigMatches reports whether a patch of ROUTE_CONFIGURATION, VIRTUAL_HOST or HTTP_ROUTE matches a route
// configuration. It compares the context, the port and the name. For a gateway it also compares portName and gateway
// with the parts of a name https.PORT.PORTNAME.GATEWAY.NAMESPACE. If the name has another form, a patch that states
// portName or gateway does not match. For patches with another applyTo the result is false
// (https://istio.io/latest/docs/reference/config/networking/envoy-filter/#EnvoyFilter-RouteConfigurationMatch).
func RouteConfigMatches(p model.Patch, rc RouteConfig) bool {
	config := p.Config()
	switch config.GetApplyTo() {
	case networkingv1.EnvoyFilter_ROUTE_CONFIGURATION, networkingv1.EnvoyFilter_VIRTUAL_HOST,
		networkingv1.EnvoyFilter_HTTP_ROUTE:
	default:
		return false
	}
	if c := config.GetMatch().GetContext(); c != networkingv1.EnvoyFilter_ANY && c != rc.Context {
		return false
	}
	m := config.GetMatch().GetRouteConfiguration()
	if port := m.GetPortNumber(); port != 0 && port != rc.Port && !slices.Contains(rc.ServerPorts.All(), port) {
		return false
	}
	if m.GetName() != "" && m.GetName() != rc.Name {
		return false
	}
	if rc.Context != networkingv1.EnvoyFilter_GATEWAY {
		return true
	}
	portName, gateway := serverOf(rc.Name)
	return (m.GetPortName() == "" || m.GetPortName() == portName) && (m.GetGateway() == "" || m.GetGateway() == gateway)
}

// serverOf parses the name https.PORT.PORTNAME.GATEWAY.NAMESPACE. It returns the name of the port, and the Gateway as
// "namespace/name". As in istiod, both results are empty for a name of any other form. Examples are a name with a bind
// address, and a name with a dot in the Gateway's name.
func serverOf(name string) (portName, gateway string) {
	if parts := strings.Split(name, "."); len(parts) == 5 && parts[0] == "https" {
		return parts[2], parts[4] + "/" + parts[3]
	}
	return "", ""
}

// VirtualHostMatches reports whether a patch may change a virtual host of a route configuration. Such a patch is for
// HTTP_ROUTE, or for VIRTUAL_HOST with an operation other than ADD. The builder of the virtual host needs all patches
// for which the result is true. VirtualHostMatches does not compare domains.
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

// AddsVirtualHost reports whether a patch adds a virtual host to a route configuration (VIRTUAL_HOST ADD). It does not
// decode the value.
func AddsVirtualHost(p model.Patch, rc RouteConfig) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_VIRTUAL_HOST &&
		operation(p) == networkingv1.EnvoyFilter_Patch_ADD && RouteConfigMatches(p, rc)
}

// MergesRouteConfig reports whether a patch matches a route configuration and merges a value into it
// (ROUTE_CONFIGURATION).
func MergesRouteConfig(p model.Patch, rc RouteConfig) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_ROUTE_CONFIGURATION &&
		merges(p) && RouteConfigMatches(p, rc)
}

// ApplyRouteConfig returns a copy of rc into which the patches of ROUTE_CONFIGURATION are merged, in order. It returns
// rc itself if there are no such patches. It ignores the matches of the patches, so the caller must pass only patches
// that match rc. The result keeps the name of rc, because the name identifies the resource. A patch that does not
// decode, or whose result Envoy would refuse, is left out. The errors have a Left for each patch that is left out, and
// a model.Problem for each applied patch that states a different name.
func ApplyRouteConfig(rc *routev3.RouteConfiguration, patches []model.Patch) (*routev3.RouteConfiguration, []error) {
	return (*Trace)(nil).ApplyRouteConfig(rc, patches)
}

// ApplyRouteConfig returns the results of the function ApplyRouteConfig, and records the patches that change rc in t.
func (t *Trace) ApplyRouteConfig(rc *routev3.RouteConfiguration, patches []model.Patch) (*routev3.RouteConfiguration, []error) {
	patches = filterPatches(patches, func(p model.Patch) bool {
		return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_ROUTE_CONFIGURATION && merges(p)
	})
	if len(patches) == 0 {
		return rc, nil
	}
	l := omissions{resource: "route configuration " + rc.GetName(), trace: t}
	merged := applyAccepted(&l, patches, func(some []model.Patch) (*routev3.RouteConfiguration, []error) {
		omitted, next := omissions{resource: l.resource}, proto.CloneOf(rc)
		for _, p := range some {
			next = traced(t, p, next, func(next *routev3.RouteConfiguration) *routev3.RouteConfiguration {
				next = mergedInto(&omitted, p, next)
				omitted.faults = append(omitted.faults, keepName(p, "route configuration", &next.Name, rc.GetName())...)
				return next
			})
		}
		return next, omitted.faults
	})
	return merged, l.faults
}

// ApplyVirtualHost applies the patches that match the virtual host's name and domains. The patches of VIRTUAL_HOST
// precede the patches of HTTP_ROUTE. ApplyVirtualHost does not compare the properties of the route configuration, such
// as its name. If a patch removes the virtual host, the first result is nil. ApplyVirtualHost may change vh, so the
// caller must own vh. Routes that patches add are shared and read-only. A patch that does not decode, or whose result
// Envoy would refuse, is left out. The second result has at least one error (Left) for each patch that is left out.
func ApplyVirtualHost(vh *routev3.VirtualHost, patches []model.Patch) (*routev3.VirtualHost, []error) {
	return (*Trace)(nil).ApplyVirtualHost(vh, patches)
}

// ApplyVirtualHost returns the results of the function ApplyVirtualHost. It records the patches that change the virtual
// host in t.
func (t *Trace) ApplyVirtualHost(vh *routev3.VirtualHost, patches []model.Patch) (*routev3.VirtualHost, []error) {
	l := &omissions{resource: "virtual host " + vh.GetName(), trace: t}
	if itself := filterPatches(patches, changesHost); len(itself) > 0 {
		vh = applyToHost(l, vh, itself)
	}
	if vh != nil {
		vh.Routes = applyRoutes(routesOf(l, vh, patches), vh.GetRoutes())
	}
	return vh, l.faults
}

// changeVirtualHost returns a copy of a virtual host to which the matching patches of VIRTUAL_HOST are applied. It
// returns nil if a patch removes the virtual host.
func changeVirtualHost(
	vh *routev3.VirtualHost, resource string, patches []model.Patch, t *Trace,
) (*routev3.VirtualHost, []error) {
	l := omissions{resource: resource}
	vh = proto.CloneOf(vh)
	for _, p := range patches {
		if !namesVirtualHost(p, vh.GetName()) || !hasDomain(p, vh) {
			continue
		}
		switch op := operation(p); {
		case op == networkingv1.EnvoyFilter_Patch_REMOVE:
			t.mark(p)
			return nil, l.faults
		case merges(p):
			vh = traced(t, p, vh, func(vh *routev3.VirtualHost) *routev3.VirtualHost {
				vh = mergedInto(&l, p, vh)
				vh.Domains = unique(vh.Domains)
				return vh
			})
		case op == networkingv1.EnvoyFilter_Patch_REPLACE:
			if value, err := wholeValue[*routev3.VirtualHost](p); !l.omit(p, err) {
				was := vh
				vh = proto.CloneOf(value)
				vh.Domains = unique(vh.Domains)
				if t != nil && !proto.Equal(was, vh) {
					t.mark(p)
				}
			}
		}
	}
	return vh, l.faults
}

// filterPatches returns the patches that the predicate accepts, in order.
func filterPatches(patches []model.Patch, holds func(model.Patch) bool) (some []model.Patch) {
	for _, p := range patches {
		if holds(p) {
			some = append(some, p)
		}
	}
	return some
}

// applyRoutes applies the patches of HTTP_ROUTE to the routes of a virtual host, and returns all routes. It changes and
// removes routes first, and then adds routes. Patches therefore never change added routes, and a patch may insert a
// route beside a route that an earlier patch added.
func applyRoutes(patches *RoutePatches, routes []*routev3.Route) []*routev3.Route {
	if patches.Empty() {
		return routes
	}
	kept := make([]*routev3.Route, 0, len(routes))
	for _, r := range routes {
		if r = patches.Change(r); r != nil {
			kept = append(kept, r)
		}
	}
	return patches.Add(kept, func() {})
}

// changeRoute returns a copy of a route to which the matching patches are applied, or nil if a patch removes the route.
func changeRoute(r *routev3.Route, resource string, patches []model.Patch, t *Trace) (*routev3.Route, []error) {
	l := omissions{resource: resource}
	r = proto.CloneOf(r)
	for _, p := range patches {
		switch {
		case !matchesRoute(p, r):
		case merges(p):
			r = traced(t, p, r, func(r *routev3.Route) *routev3.Route { return mergedInto(&l, p, r) })
		default:
			t.mark(p)
			return nil, l.faults
		}
	}
	return r, l.faults
}

// addRoute inserts the route of a patch, and returns all routes. ADD appends the route, and INSERT_FIRST inserts it at
// the start. INSERT_BEFORE and INSERT_AFTER insert the route directly before or after the first route that matches. If
// the patch has no route match, INSERT_BEFORE inserts at the start and INSERT_AFTER at the end. If the patch has a
// route match that no route matches, the three INSERT operations have no effect.
func addRoute(l *omissions, routes []*routev3.Route, p model.Patch) []*routev3.Route {
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
	value, err := wholeValue[*routev3.Route](p)
	if l.omit(p, err) {
		return routes
	}
	l.trace.mark(p)
	return slices.Insert(routes, at, value)
}

// operation returns the operation of a patch.
func operation(p model.Patch) networkingv1.EnvoyFilter_Patch_Operation {
	return p.Config().GetPatch().GetOperation()
}

// namesVirtualHost reports whether the match of a patch has the name of a virtual host, or no name.
func namesVirtualHost(p model.Patch, vhost string) bool {
	name := p.Config().GetMatch().GetRouteConfiguration().GetVhost().GetName()
	return name == "" || name == vhost
}

// hasDomain reports whether a virtual host has the domain that the match of a patch states. It returns true if the
// match states no domain.
func hasDomain(p model.Patch, vh *routev3.VirtualHost) bool {
	domain := p.Config().GetMatch().GetRouteConfiguration().GetVhost().GetDomainName()
	return domain == "" || slices.Contains(vh.GetDomains(), domain)
}

// routeMatch returns the part of a patch's match that describes a route, or nil.
func routeMatch(p model.Patch) *networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch {
	return p.Config().GetMatch().GetRouteConfiguration().GetVhost().GetRoute()
}

// matchesRoute reports whether a route has the name and type of action that the match of a patch states.
func matchesRoute(p model.Patch, r *routev3.Route) bool {
	m := routeMatch(p)
	if m.GetName() != "" && m.GetName() != r.GetName() {
		return false
	}
	want := m.GetAction()
	return want == networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY || want == kindOf(r)
}

// kindOf returns the type of a route's action as the value that a patch's match states. It returns ANY for an action
// that no match can state.
func kindOf(r *routev3.Route) networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_Action {
	switch r.GetAction().(type) {
	case *routev3.Route_Route:
		return networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE
	case *routev3.Route_Redirect:
		return networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT
	case *routev3.Route_DirectResponse:
		return networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE
	}
	return networkingv1.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY
}

// unique removes repeated domains in place, because Envoy would refuse the virtual host.
func unique(domains []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(domains, func(d string) bool {
		again := seen[d]
		seen[d] = true
		return again
	})
}
