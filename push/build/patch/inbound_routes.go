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

// InboundRoutes returns the properties, for matching, of the route configuration for an inbound cluster. Such a route
// configuration is part of a listener and has the name of the cluster. The Port of the result is the port in the
// name: 8080 for inbound|8080||, and 0 for InboundPassthroughCluster (istio:
// pilot/pkg/networking/core/envoyfilter/rc_patch.go).
func InboundRoutes(cluster string) RouteConfig {
	_, port, _, _, _ := xds.ParseCluster(cluster)
	return RouteConfig{Name: cluster, Port: port, Context: networkingv1.EnvoyFilter_SIDECAR_INBOUND}
}

// RouteConfiguration applies the matching patches to a route configuration and its virtual hosts, and returns the
// result. The order is Istio's: ROUTE_CONFIGURATION, then VIRTUAL_HOST and HTTP_ROUTE for each virtual host, then the
// added virtual hosts. It may change rc, so the caller must own rc.
//
// A patch that does not decode, or whose result Envoy would refuse, is left out. A domain that an earlier virtual
// host has is removed without an error, because Envoy would refuse the listener. A virtual host without domains is
// removed too. The result has an error for each patch that is left out (Left), and for each patch that states a
// different name (a model.Problem).
func RouteConfiguration(
	rc *routev3.RouteConfiguration, of RouteConfig, patches []model.Patch,
) (*routev3.RouteConfiguration, []error) {
	return (*Trace)(nil).RouteConfiguration(rc, of, patches)
}

// RouteConfiguration is the function RouteConfiguration, and records the patches that change the route configuration or
// its virtual hosts.
func (t *Trace) RouteConfiguration(
	rc *routev3.RouteConfiguration, of RouteConfig, patches []model.Patch,
) (*routev3.RouteConfiguration, []error) {
	patches = filterPatches(patches, func(p model.Patch) bool { return RouteConfigMatches(p, of) })
	if len(patches) == 0 {
		return rc, nil
	}
	rc, faults := t.ApplyRouteConfig(rc, patches)
	l := omissions{resource: "route configuration " + of.Name}
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
		if !AddsVirtualHost(p, of) {
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
