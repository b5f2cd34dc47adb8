package preview

import (
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// maxBootstrap is the maximum size of an encoded bootstrap in bytes. A larger configuration is not validated.
const maxBootstrap = 4 << 20

// agentCluster is the name of the cluster through which Envoy reaches its agent.
const agentCluster = "xds-grpc"

// bootstrapOf returns an encoded bootstrap that contains a configuration as static resources. Envoy can validate it
// (envoy --mode validate). It has no confidential parts, because secrets and discovered extensions stay references.
// bootstrapOf fails if a resource cannot be decoded, or if the bootstrap is too large.
func bootstrapOf(set *manifest.Set) ([]byte, error) {
	static := &bootstrapv3.Bootstrap_StaticResources{}
	for _, r := range set.Types[xds.Cluster].Sorted() {
		c, err := message[*clusterv3.Cluster](r)
		if err != nil {
			return nil, err
		}
		if c.GetType() == clusterv3.Cluster_EDS && c.GetClusterType() == nil {
			c.ClusterDiscoveryType, c.EdsClusterConfig = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, nil
			if c.LoadAssignment, err = message[*endpointv3.ClusterLoadAssignment](set.Types[xds.Endpoint].Get(r.Name)); err != nil {
				return nil, err
			}
		}
		static.Clusters = append(static.Clusters, c)
	}
	for _, r := range set.Types[xds.Listener].Sorted() {
		l, err := message[*listenerv3.Listener](r)
		if err != nil {
			return nil, err
		}
		if err := inlineRoutes(set, l); err != nil {
			return nil, fmt.Errorf("listener %s: %w", r.Name, err)
		}
		static.Listeners = append(static.Listeners, l)
	}
	static.Clusters = append(static.Clusters, &clusterv3.Cluster{Name: xds.SDSCluster}, &clusterv3.Cluster{Name: agentCluster})
	ads := &corev3.ApiConfigSource{ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: agentCluster}}}}}
	raw, err := proto.Marshal(&bootstrapv3.Bootstrap{Node: &corev3.Node{Id: "validated", Cluster: "validated"}, StaticResources: static,
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: ads}})
	if err == nil && len(raw) > maxBootstrap {
		err = fmt.Errorf("%d bytes of configuration, more than the limit of %d", len(raw), maxBootstrap)
	}
	return raw, err
}

// message decodes a resource. For nil it returns nil. The caller owns the result. The error names the resource.
func message[M proto.Message](r *xds.Resource) (none M, err error) {
	if r == nil {
		return none, nil
	}
	m, err := inspect.Message(r)
	if err != nil {
		return none, fmt.Errorf("%s %s: %w", r.Type.Noun(), r.Name, err)
	}
	typed, is := m.(M)
	if !is {
		return none, fmt.Errorf("%s %s: is a %T", r.Type.Noun(), r.Name, m)
	}
	return typed, nil
}

// inlineRoutes replaces each reference of a listener to a route configuration by the route configuration itself. It
// disables the validation of clusters, because routes that are discovered may name clusters that do not exist.
func inlineRoutes(set *manifest.Set, l *listenerv3.Listener) error {
	chains := l.GetFilterChains()
	if l.GetDefaultFilterChain() != nil {
		chains = append(chains[:len(chains):len(chains)], l.GetDefaultFilterChain())
	}
	for _, chain := range chains {
		for _, f := range chain.GetFilters() {
			m := &hcmv3.HttpConnectionManager{}
			if !f.GetTypedConfig().MessageIs(m) {
				continue
			}
			if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
				return err
			}
			rc := m.GetRouteConfig()
			if name := m.GetRds().GetRouteConfigName(); name != "" {
				found, err := message[*routev3.RouteConfiguration](set.Types[xds.Route].Get(name))
				if err != nil {
					return err
				}
				if rc = found; rc == nil {
					continue // Envoy would wait for the route configuration
				}
			}
			if rc != nil {
				rc.ValidateClusters = wrapperspb.Bool(false)
				m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc}
			}
			if err := f.GetTypedConfig().MarshalFrom(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// Bootstrap contains a view's configuration as static bootstraps of Envoy, encoded envoy.config.bootstrap.v3.Bootstrap.
type Bootstrap struct {
	Before []byte `json:"before,omitempty"` // before the change; nil if it cannot be encoded, is too large, or After is nil
	After  []byte `json:"after,omitempty"`  // after the change; nil if Lacking is set
	// Lacking is the reason why Before and After are nil. It is empty if After is set.
	Lacking string `json:"lacking,omitempty"`
}

// bootstraps returns the bootstraps of a view.
func (v *View) bootstraps() *Bootstrap {
	after, err := bootstrapOf(v.After)
	if err != nil {
		return &Bootstrap{Lacking: err.Error()}
	}
	before, err := bootstrapOf(v.Before)
	if err != nil {
		before = nil // the configuration after the change is validated nevertheless
	}
	return &Bootstrap{Before: before, After: after}
}
