package scene

import (
	"cmp"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// holds decodes what a proxy holds of one type, by name.
func holds[M proto.Message](p *proxy, t xds.Type) map[string]M {
	out := map[string]M{}
	for name, r := range p.held[t] {
		m, err := inspect.Message(r)
		if err != nil {
			panic(err) // bytes of ours
		}
		out[name] = m.(M)
	}
	return out
}

// judgements are Envoy's validation results, by the hash of the configuration: many proxies of many scenes have equal
// ones.
var judgements = map[[sha256.Size]byte]string{}

// istios are the filters of Istio's own Envoy. The validating Envoy lacks these extensions and would refuse any
// configuration with them, so they are left out. Their configurations are tested by their builders.
var istios = []string{"istio.metadata_exchange", "istio.alpn", "istio.stats"}

// unjudged reports whether the validating Envoy cannot validate a filter: it is Istio's own, or a module elsewhere that
// Envoy would load.
func unjudged(f interface {
	GetName() string
	GetConfigDiscovery() *corev3.ExtensionConfigSource
}) bool {
	return f.GetConfigDiscovery() != nil || slices.Contains(istios, f.GetName())
}

// judge combines a proxy's resources into one static bootstrap, and has Envoy validate it. It returns Envoy's first
// error.
func (s *stage) judge(a *actor) string {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(fold(a.proxy))
	if err != nil {
		return err.Error()
	}
	judgement, known := judgements[sha256.Sum256(raw)]
	if known {
		return judgement
	}
	path := filepath.Join(s.dir, "judged.pb")
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		return err.Error()
	}
	judgement = envoytest.Validate(s.envoy, path)
	judgements[sha256.Sum256(raw)] = judgement
	return judgement
}

// secretsOfAgent changes the source of a cluster's TLS secrets to that of an agent's. A static cluster is created
// before ADS, and Envoy 1.40 crashes if it requests secrets by ADS then. Clusters from CDS may do so.
func secretsOfAgent(socket *corev3.TransportSocket) {
	conf := &tlsv3.UpstreamTlsContext{}
	if !socket.GetTypedConfig().MessageIs(conf) || socket.GetTypedConfig().UnmarshalTo(conf) != nil {
		return
	}
	common := conf.GetCommonTlsContext()
	for _, s := range append(slices.Clone(common.GetTlsCertificateSdsSecretConfigs()), common.GetValidationContextSdsSecretConfig(), common.GetCombinedValidationContext().GetValidationContextSdsSecretConfig()) {
		if s.GetSdsConfig().GetAds() != nil {
			s.SdsConfig = &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: xds.SDSCluster}}}},
			}}}
		}
	}
	socket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: xds.Any(conf)}
}

func fold(p *proxy) *bootstrapv3.Bootstrap {
	b := &bootstrapv3.Bootstrap{Node: &corev3.Node{Id: "scene", Cluster: "scene"}, StaticResources: &bootstrapv3.Bootstrap_StaticResources{}}
	endpoints := holds[*endpointv3.ClusterLoadAssignment](p, xds.Endpoint)
	for name, c := range holds[*clusterv3.Cluster](p, xds.Cluster) {
		if c.GetType() == clusterv3.Cluster_EDS {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
			c.EdsClusterConfig, c.LoadAssignment = nil, endpoints[name]
		}
		secretsOfAgent(c.GetTransportSocket())
		for _, m := range c.GetTransportSocketMatches() {
			secretsOfAgent(m.GetTransportSocket())
		}
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, c)
	}
	// Of the bootstrap of a proxy with an identity.
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, &clusterv3.Cluster{Name: xds.SDSCluster})
	for _, secret := range holds[*tlsv3.Secret](p, xds.Secret) {
		b.StaticResources.Secrets = append(b.StaticResources.Secrets, secret)
	}
	slices.SortFunc(b.StaticResources.Secrets, func(a, b *tlsv3.Secret) int { return cmp.Compare(a.GetName(), b.GetName()) })
	extensions := holds[*corev3.TypedExtensionConfig](p, xds.Extension)
	routes := holds[*routev3.RouteConfiguration](p, xds.Route)
	for _, l := range holds[*listenerv3.Listener](p, xds.Listener) {
		for _, c := range append(slices.Clone(l.GetFilterChains()), l.GetDefaultFilterChain()) {
			if c != nil {
				c.Filters = slices.DeleteFunc(c.Filters, func(f *listenerv3.Filter) bool { return unjudged(f) })
			}
			for _, f := range c.GetFilters() {
				m := &hcmv3.HttpConnectionManager{}
				if !f.GetTypedConfig().MessageIs(m) || f.GetTypedConfig().UnmarshalTo(m) != nil {
					continue
				}
				if m.GetRds() != nil {
					rc := proto.CloneOf(routes[m.GetRds().GetRouteConfigName()])
					rc.ValidateClusters = wrapperspb.Bool(false) // as with RDS
					m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc}
				}
				for _, h := range m.HttpFilters {
					if config := extensions[h.GetName()]; h.GetConfigDiscovery() != nil && config.GetTypedConfig().MessageIs(&luav3.Lua{}) {
						h.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: config.GetTypedConfig()}
					}
				}
				m.HttpFilters = slices.DeleteFunc(m.HttpFilters, func(h *hcmv3.HttpFilter) bool { return unjudged(h) })
				f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(m)}
			}
		}
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, l)
	}
	slices.SortFunc(b.StaticResources.Clusters, func(a, b *clusterv3.Cluster) int { return cmp.Compare(a.GetName(), b.GetName()) })
	slices.SortFunc(b.StaticResources.Listeners, func(a, b *listenerv3.Listener) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return b
}
