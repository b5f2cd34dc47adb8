package plan

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// takenByGRPC checks for everything that makes grpc-go refuse or ignore a resource, by the rules of its parsers
// (google.golang.org/grpc/internal/xds/xdsclient/xdsresource, which cannot be imported).
func takenByGRPC(t *testing.T, set *manifest.Set) {
	t.Helper()
	for r := range set.Types[xds.Cluster].All() {
		grpcCluster(t, decode(t, set, xds.Cluster, r.Name, &clusterv3.Cluster{}))
	}
	for r := range set.Types[xds.Endpoint].All() {
		grpcAssignment(t, decode(t, set, xds.Endpoint, r.Name, &endpointv3.ClusterLoadAssignment{}))
	}
	for r := range set.Types[xds.Route].All() {
		rc := decode(t, set, xds.Route, r.Name, &routev3.RouteConfiguration{})
		grpcRoutes(t, rc)
		for _, name := range clustersOf(rc) {
			if set.Types[xds.Cluster].Get(name) == nil {
				t.Errorf("route %s: there is no cluster %s, and gRPC's client waits for it", r.Name, name)
			}
		}
	}
	for r := range set.Types[xds.Listener].All() {
		grpcListener(t, decode(t, set, xds.Listener, r.Name, &listenerv3.Listener{}))
	}
}

func grpcCluster(t *testing.T, c *clusterv3.Cluster) {
	t.Helper()
	lb, kind := c.LbPolicy, c.GetType()
	switch {
	case lb != clusterv3.Cluster_ROUND_ROBIN && lb != clusterv3.Cluster_RING_HASH, c.LoadBalancingPolicy != nil, len(c.TransportSocketMatches) > 0,
		kind != clusterv3.Cluster_EDS && kind != clusterv3.Cluster_LOGICAL_DNS,
		kind == clusterv3.Cluster_EDS && c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil,
		kind == clusterv3.Cluster_LOGICAL_DNS && (len(c.LoadAssignment.Endpoints) != 1 || len(c.LoadAssignment.Endpoints[0].LbEndpoints) != 1),
		c.CircuitBreakers == nil && c.Name != xds.BlackHole && c.GetEdsClusterConfig().GetServiceName() != xds.BlackHole:
		t.Errorf("gRPC's client does not take cluster %v", c)
	}
}

func grpcAssignment(t *testing.T, cla *endpointv3.ClusterLoadAssignment) {
	t.Helper()
	seen, addresses, last := map[string]bool{}, map[string]bool{}, uint32(0)
	for _, group := range cla.Endpoints {
		id := group.Locality.String() + string(rune('0'+group.Priority))
		if group.Locality == nil || group.GetLoadBalancingWeight().GetValue() == 0 || seen[id] || group.Priority > last+1 || len(seen) == 0 && group.Priority > 0 {
			t.Errorf("gRPC's client does not take the localities of %v", cla)
		}
		seen[id], last = true, group.Priority
		for _, e := range group.LbEndpoints {
			at := e.GetEndpoint().GetAddress().GetSocketAddress().String()
			if at == "" || addresses[at] || e.GetLoadBalancingWeight().GetValue() == 0 {
				t.Errorf("gRPC's client does not take the endpoint %v of %s", e, cla.ClusterName)
			}
			addresses[at] = true
		}
	}
}

func grpcRoutes(t *testing.T, rc *routev3.RouteConfiguration) {
	t.Helper()
	for _, r := range rc.VirtualHosts[0].Routes {
		action := r.GetRoute()
		fine := len(r.GetMatch().GetQueryParameters()) == 0 && action.GetRetryPolicy().GetNumRetries().GetValue() != 0 == (action.GetRetryPolicy() != nil)
		for name := range r.TypedPerFilterConfig {
			fine = fine && name == xds.FaultFilter
		}
		if w := action.GetWeightedClusters(); w != nil {
			total := uint32(0)
			for _, c := range w.Clusters {
				total += c.GetWeight().GetValue()
			}
			fine = fine && total > 0
		}
		if !fine || len(rc.VirtualHosts) != 1 || action == nil && r.GetRedirect() == nil && r.GetDirectResponse() == nil {
			t.Errorf("gRPC's client does not take route %v of %s", r, rc.Name)
		}
	}
}

func clustersOf(rc *routev3.RouteConfiguration) (names []string) {
	for _, r := range rc.VirtualHosts[0].Routes {
		if name := r.GetRoute().GetCluster(); name != "" {
			names = append(names, name)
		}
		for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
			names = append(names, c.Name)
		}
	}
	return names
}

func grpcListener(t *testing.T, l *listenerv3.Listener) {
	t.Helper()
	config := l.GetApiListener().GetApiListener()
	if config == nil {
		if len(l.ListenerFilters) > 0 || l.UseOriginalDst != nil || len(l.FilterChains) != 1 || l.FilterChains[0].FilterChainMatch != nil ||
			!strings.HasPrefix(l.Name, xds.ServerListener) {
			t.Errorf("gRPC's client does not take listener %v", l)
		}
		config = l.FilterChains[0].Filters[0].GetTypedConfig()
	}
	m := &hcmv3.HttpConnectionManager{}
	if err := config.UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range m.HttpFilters {
		if names[f.Name] {
			t.Errorf("listener %s has the filter %s twice", l.Name, f.Name)
		}
		names[f.Name] = true
		rbac := &rbacv3.RBAC{}
		if f.GetTypedConfig().MessageIs(rbac) {
			if err := f.GetTypedConfig().UnmarshalTo(rbac); err != nil || rbac.Rules.Action == rbacconfigv3.RBAC_LOG || forbidden(rbac) {
				t.Errorf("gRPC's client does not take the rules %v", rbac)
			}
		}
	}
	if len(m.HttpFilters) == 0 || m.HttpFilters[len(m.HttpFilters)-1].Name != "envoy.filters.http.router" {
		t.Errorf("listener %s does not end with the router", l.Name)
	}
}

// forbidden reports whether rules name headers that gRPC's client does not allow in rules (gRFC A41).
func forbidden(rules proto.Message) bool {
	text := rules.(*rbacv3.RBAC).String()
	return strings.Contains(text, `name:":scheme"`) || strings.Contains(text, `name:"grpc-`)
}
