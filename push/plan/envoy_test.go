package plan

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"navarch.io/navarch/loadtest/envoytest"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// TestEnvoyTakesRandomMeshes folds what was planned for random meshes into bootstraps, and asks a real Envoy.
func TestEnvoyTakesRandomMeshes(t *testing.T) {
	envoy := envoytest.Binary(t)
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		d := newDrill(t, 500+uint64(seed), &affects)
		for i := range 60 {
			d.step(i)
			d.drain()
		}
		for _, h := range d.handles {
			complaint := envoytest.Validate(envoy, envoytest.File(t, envoytest.JSON(t, fold(t, h.Set()))))
			if complaint != "" {
				t.Errorf("seed %d, %s/%s: %s", seed, h.Node.Namespace, h.Node.Name, complaint)
			}
		}
	}
}

// fold makes a bootstrap of a set, with assignments and route configurations inside of what asks for them.
func fold(t *testing.T, set *manifest.Set) []byte {
	t.Helper()
	var clusters, listeners []json.RawMessage
	raw := func(m proto.Message) json.RawMessage {
		b, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, r := range set.Types[xds.Cluster].Sorted() {
		c := clusterOf(t, set, r.Name)
		if c.GetType() == clusterv3.Cluster_EDS {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
			c.EdsClusterConfig = nil
			c.LoadAssignment = decode(t, set, xds.Endpoint, r.Name, &endpointv3.ClusterLoadAssignment{})
		}
		clusters = append(clusters, raw(c))
	}
	for _, r := range set.Types[xds.Listener].Sorted() {
		l := listenerOf(t, set, r.Name)
		for _, chain := range append(l.FilterChains, l.DefaultFilterChain) {
			for _, f := range chain.GetFilters() {
				m := &hcmv3.HttpConnectionManager{}
				if f.GetTypedConfig().UnmarshalTo(m) == nil && m.GetRds() != nil {
					rc := decode(t, set, xds.Route, m.GetRds().GetRouteConfigName(), &routev3.RouteConfiguration{})
					m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc}
					if err := f.GetTypedConfig().MarshalFrom(m); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		listeners = append(listeners, raw(l))
	}
	clusters = append(clusters, raw(&clusterv3.Cluster{Name: xds.SDSCluster}))
	b, err := json.Marshal(map[string]any{"node": map[string]any{"id": "x", "cluster": "x"}, "static_resources": map[string]any{"clusters": clusters, "listeners": listeners}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
