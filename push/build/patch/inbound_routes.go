package patch

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// InboundRoutes returns the RouteConfig (the properties that patches match) for an inbound cluster. The route
// configuration of the cluster is part of a listener, and has the name of the cluster. The Port of the result is the
// port in the name: 8080 for inbound|8080||. A name without a valid port, such as InboundPassthroughCluster, gives 0
// (istio: pilot/pkg/networking/core/envoyfilter/rc_patch.go).
func InboundRoutes(cluster string) RouteConfig {
	_, port, _, _, ok := xds.ParseCluster(cluster)
	if !ok {
		port = 0
	}
	return RouteConfig{Name: cluster, Port: port, Context: networkingv1.EnvoyFilter_SIDECAR_INBOUND}
}

// RouteConfiguration applies the matching patches to a route configuration and its virtual hosts, and returns the
// result. Patches are compared with the given RouteConfig, which describes rc. The order is Istio's:
// ROUTE_CONFIGURATION, then VIRTUAL_HOST and HTTP_ROUTE for each virtual host, then the added virtual hosts.
// RouteConfiguration may change rc, so the caller must own rc. If no patch matches, the result is rc, unchanged. Routes
// that patches add are shared and read-only.
//
// A patch that does not decode, or whose result Envoy would refuse, is left out. If any patch matches, repeated domains
// are removed without an error, because Envoy would refuse the listener. A domain is repeated if the same or an earlier
// virtual host already has the domain, in upper or lower case. Virtual hosts without domains are removed too. The
// errors have at least one Left for each patch that is left out. They also have a model.Problem for each patch that
// states a different name for the route configuration.
func RouteConfiguration(
	rc *routev3.RouteConfiguration, of RouteConfig, patches []model.Patch,
) (*routev3.RouteConfiguration, []error) {
	return (*Trace)(nil).RouteConfiguration(rc, of, patches)
}

// RouteConfiguration returns the results of the function RouteConfiguration. It records the patches that change the
// route configuration or its virtual hosts in t.
func (t *Trace) RouteConfiguration(
	rc *routev3.RouteConfiguration, target RouteConfig, patches []model.Patch,
) (*routev3.RouteConfiguration, []error) {
	patches = filterPatches(patches, func(p model.Patch) bool { return RouteConfigMatches(p, target) })
	if len(patches) == 0 {
		return rc, nil
	}
	rc, faults := t.ApplyRouteConfig(rc, patches)
	l := omissions{resource: "route configuration " + target.Name}
	var hosts []*routev3.VirtualHost
	added := map[*routev3.VirtualHost]model.Patch{}
	for _, vh := range rc.VirtualHosts {
		vh, more := t.ApplyVirtualHost(vh, patches)
		faults = append(faults, more...)
		if vh != nil {
			hosts = append(hosts, vh)
		}
	}
	for _, p := range patches {
		if !AddsVirtualHost(p, target) {
			continue
		}
		if vh, err := wholeValue[*routev3.VirtualHost](p); !l.omit(p, err) {
			vh = proto.CloneOf(vh)
			hosts, added[vh] = append(hosts, vh), p
		}
	}
	taken := map[string]bool{}
	rc.VirtualHosts = slices.DeleteFunc(hosts, func(vh *routev3.VirtualHost) bool {
		vh.Domains = slices.DeleteFunc(vh.Domains, func(name string) bool {
			name = strings.ToLower(name)
			again := taken[name]
			taken[name] = true
			return again
		})
		return len(vh.Domains) == 0
	})
	for _, vh := range rc.VirtualHosts {
		if p, is := added[vh]; is {
			t.mark(p)
		}
	}
	return rc, append(faults, l.faults...)
}
