package inspect

import (
	"fmt"
	"net/http"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// statusTypes are those that `istioctl proxy-status` has columns for.
var statusTypes = []xds.Type{xds.Listener, xds.Route, xds.Endpoint, xds.Cluster}

// Status is a ClientConfig for every proxy, as istiod answers istio.io/debug/syncz (istio pilot/pkg/xds/statusgen.go).
func Status(c Config) ([]*discoveryv3.Resource, error) {
	var all []*discoveryv3.Resource
	for _, st := range sorted(c.Streams()) {
		meta, err := structpb.NewStruct(map[string]any{"ClusterID": st.Cluster, "IstioVersion": st.Version})
		if err != nil {
			return nil, fmt.Errorf("metadata of %s: %w", st.Proxy, err)
		}
		one := &statusv3.ClientConfig{Node: &corev3.Node{Id: st.Node, Metadata: meta}}
		for _, t := range statusTypes {
			one.GenericXdsConfigs = append(one.GenericXdsConfigs,
				&statusv3.ClientConfig_GenericXdsConfig{TypeUrl: t.URL(), ConfigStatus: st.Types[t].status()})
		}
		body, err := anypb.New(one)
		if err != nil {
			return nil, fmt.Errorf("status of %s: %w", st.Proxy, err)
		}
		all = append(all, &discoveryv3.Resource{Name: st.Node, Resource: body})
	}
	return all, nil
}

func (s TypeStatus) status() statusv3.ConfigStatus {
	switch {
	case !s.Subscribed || s.Sent == "":
		return statusv3.ConfigStatus_NOT_SENT
	case s.Sent == s.Acked:
		return statusv3.ConfigStatus_SYNCED
	}
	return statusv3.ConfigStatus_STALE
}

// Dump is what one proxy (name.namespace, or its node's id) was sent, as the messages of Envoy's /config_dump: clusters,
// listeners, routes, endpoints. NotFound: it is not connected here.
func Dump(c Config, proxy string) ([]*discoveryv3.Resource, error) {
	st, err := named(c, proxy)
	if err != nil {
		return nil, err
	}
	held := st.Held()
	clusters, listeners := &adminv3.ClustersConfigDump{}, &adminv3.ListenersConfigDump{}
	routes, endpoints := &adminv3.RoutesConfigDump{}, &adminv3.EndpointsConfigDump{}
	for _, t := range []xds.Type{xds.Cluster, xds.Listener, xds.Route, xds.Endpoint} {
		for _, r := range held[t] {
			body := &anypb.Any{TypeUrl: t.URL(), Value: r.Body()}
			switch t {
			case xds.Cluster:
				clusters.DynamicActiveClusters = append(clusters.DynamicActiveClusters,
					&adminv3.ClustersConfigDump_DynamicCluster{VersionInfo: r.Version, Cluster: body})
			case xds.Listener:
				listeners.DynamicListeners = append(listeners.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{Name: r.Name,
					ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: r.Version, Listener: body}})
			case xds.Route:
				routes.DynamicRouteConfigs = append(routes.DynamicRouteConfigs,
					&adminv3.RoutesConfigDump_DynamicRouteConfig{VersionInfo: r.Version, RouteConfig: body})
			default:
				endpoints.DynamicEndpointConfigs = append(endpoints.DynamicEndpointConfigs,
					&adminv3.EndpointsConfigDump_DynamicEndpointConfig{VersionInfo: r.Version, EndpointConfig: body})
			}
		}
	}
	var all []*discoveryv3.Resource
	for _, m := range []proto.Message{clusters, listeners, routes, endpoints} {
		body, err := anypb.New(m)
		if err != nil {
			return nil, fmt.Errorf("dump of %s: %w", proxy, err)
		}
		all = append(all, &discoveryv3.Resource{Resource: body})
	}
	return all, nil
}

// StatusCode is the HTTP status of an error of a page.
func StatusCode(err error) int {
	if e, ok := err.(httpError); ok {
		return e.status
	}
	return http.StatusInternalServerError
}
