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

// InboundRoutes is what patches are matched with of the routes to an inbound cluster, which stand in its listener and have its name. Its port is that
// of the name: inbound|8080|| has 8080, InboundPassthroughCluster none (istio: pilot/pkg/networking/core/envoyfilter/rc_patch.go).
func InboundRoutes(cluster string) RouteConfig {
	_, port, _, _, _ := xds.ParseCluster(cluster)
	return RouteConfig{Name: cluster, Port: port, Context: networkingv1.EnvoyFilter_SIDECAR_INBOUND}
}

// RouteConfiguration applies the patches of ROUTE_CONFIGURATION, VIRTUAL_HOST and HTTP_ROUTE that are for it to a route configuration as a whole, in
// Istio's order: it, each virtual host and its routes, and then the virtual hosts that are added. It must be no one else's: it may be changed. A patch
// that does not decode, or that makes of it what Envoy would refuse, is left out, and so is a name that an earlier virtual host has: Envoy would refuse the
// listener. The errors are the patches that are left out, each a Left, and the names that patches state.
func RouteConfiguration(rc *routev3.RouteConfiguration, of RouteConfig, patches []model.Patch) (*routev3.RouteConfiguration, []error) {
	patches = only(patches, func(p model.Patch) bool { return RouteConfigMatches(p, of) })
	if len(patches) == 0 {
		return rc, nil
	}
	rc, faults := ApplyRouteConfig(rc, patches)
	l := leaving{resource: "route configuration " + of.Name}
	var hosts []*routev3.VirtualHost
	for _, vh := range rc.VirtualHosts {
		vh, more := ApplyVirtualHost(vh, patches)
		faults = append(faults, more...)
		if vh != nil {
			hosts = append(hosts, vh)
		}
	}
	for _, p := range patches {
		if !AddsVirtualHost(p, of) {
			continue
		}
		if vh, err := whole[*routev3.VirtualHost](p); !l.out(p, err) {
			hosts = append(hosts, proto.CloneOf(vh))
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
	return rc, append(faults, l.faults...)
}
