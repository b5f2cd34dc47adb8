package cluster

//lint:file-ignore SA1019 deprecated fields are what users' YAML and the field's proxies still have

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dynamicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	forwardv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Build draws the cluster. The error says that the service has no such port, or that settings which nobody refused make
// a cluster that Envoy would.
func (s Outbound) Build() (*xds.Resource, error) {
	r, _, err := s.draw()
	return r, err
}

// Problems are the settings that the cluster is drawn without, or refused for: each is a model.Problem, or the fault of the service.
func (s Outbound) Problems() []error {
	_, problems, err := s.draw()
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

func (s Outbound) draw() (*xds.Resource, []error, error) {
	name := xds.OutboundCluster(s.Port, s.Subset, s.Host)
	port := s.port()
	if port == nil {
		return nil, nil, fmt.Errorf("cluster %s: %v has no port %d", name, s.Service.Key, s.Port)
	}
	p := s.Policy.Get()
	d := newBuilder(name, discoveries[s.Discovery], s.Connection, s.Mesh)
	d.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: percent(0)}
	s.metadata(d)
	if pattern := s.Mesh.Spec.GetOutboundClusterStatName(); pattern != "" {
		d.AltStatName = statName(pattern, s.Service, s.Host, s.Subset, port, 0) + statDelimiter
	}
	switch port.Protocol {
	case model.Protocol_PROTOCOL_HTTP2, model.Protocol_PROTOCOL_GRPC, model.Protocol_PROTOCOL_GRPC_WEB:
		d.useHTTP2()
	case model.Protocol_PROTOCOL_AUTO:
		d.useClientProtocol()
	default: // HTTP/1.1, and what is no HTTP
	}
	if s.Upgrade {
		d.useHTTP2()
	}
	if s.HeaderCase && (port.Protocol == model.Protocol_PROTOCOL_HTTP || port.Protocol == model.Protocol_PROTOCOL_AUTO) {
		d.keepHeaderCase()
	}
	d.pool(p.Pool, p.RetryBudget)
	d.keepalive(s.Connection.Keepalive)
	d.outlier(p)
	d.balance(p)
	s.locate(d)
	if s.Discovery != traffic.OriginalDst && s.Discovery != traffic.Dynamic {
		s.weigh(d)
	}
	s.secure(d, p)
	if s.Discovery == traffic.Dynamic && s.TLS != traffic.Closed {
		d.forward(dnscache.Config(s.Host, s.Families))
	}
	r, err := d.seal(s.Patches.All())
	return r, d.problems, err
}

func (s Outbound) port() *model.ServicePort {
	for _, p := range s.Service.Spec.Ports {
		if p.Number == s.Port {
			return p
		}
	}
	return nil
}

// discoveries are Envoy's words for how endpoints are found.
var discoveries = map[traffic.Discovery]clusterv3.Cluster_DiscoveryType{
	traffic.EDS: clusterv3.Cluster_EDS, traffic.StrictDNS: clusterv3.Cluster_STRICT_DNS, traffic.LogicalDNS: clusterv3.Cluster_LOGICAL_DNS,
	traffic.OriginalDst: clusterv3.Cluster_ORIGINAL_DST, traffic.Dynamic: clusterv3.Cluster_STATIC, // until forward
}

// weigh says how Envoy weighs localities of one priority against each other. An Envoy that knows its own workload's cluster would prefer its own zone in every
// cluster that does not say otherwise (envoy: configuration/upstream/cluster_manager/cluster_runtime, upstream.zone_routing.enabled).
func (s Outbound) weigh(d *builder) {
	zones := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{RoutingEnabled: percent(0)}
	switch {
	case s.Localities.Zones != nil:
		zones.RoutingEnabled = percent(100)
		if size := s.Localities.Zones.GetMinClusterSize(); size != nil {
			zones.MinClusterSize = wrapperspb.UInt64(uint64(size.GetValue()))
		}
	case s.Localities.Weighted():
		d.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{}}
		return
	case !s.Caps.Has(xds.CapSelfDiscovery):
		return
	}
	d.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: zones}
}

// locate says where the endpoints come from.
func (s Outbound) locate(d *builder) {
	switch s.Discovery {
	case traffic.EDS:
		d.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{
			ServiceName: d.Name,
			EdsConfig: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
				InitialFetchTimeout:   durationpb.New(0),
				ResourceApiVersion:    corev3.ApiVersion_V3,
			},
		}
	case traffic.StrictDNS, traffic.LogicalDNS:
		s.resolve(d)
	case traffic.OriginalDst, traffic.Dynamic:
	}
}

// forward has the cluster resolve names as its listeners' filters say which (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/http/http_proxy).
// What it expects of servers, where a rule says so, goes before Envoy's rule that it be the name that was asked for.
func (d *builder) forward(cache *forwardv3.DnsCacheConfig) {
	config := &dynamicv3.ClusterConfig{ClusterImplementationSpecifier: &dynamicv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: cache}}
	if d.http != nil { // Envoy says both itself where there are no options of HTTP at all
		up := d.http.GetUpstreamHttpProtocolOptions()
		config.AllowInsecureClusterOptions = !up.GetAutoSni() || !up.GetAutoSanValidation()
	}
	d.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.dynamic_forward_proxy", TypedConfig: xds.Any(config)}}
	d.LbPolicy, d.LbConfig, d.CommonLbConfig = clusterv3.Cluster_CLUSTER_PROVIDED, nil, nil
}

func (s Outbound) metadata(d *builder) {
	d.describe(s.Host, s.Service)
	istio := d.istioMetadata()
	istio["default_original_port"] = structpb.NewNumberValue(float64(s.Port))
	if s.Service.Spec.External {
		istio["external"] = structpb.NewBoolValue(true)
	}
	rule := s.Rule
	if s.Subset != "" {
		istio["subset"] = structpb.NewStringValue(s.Subset)
		rule = cmp.Or(s.SubsetRule, s.Rule)
	}
	if rule != nil {
		istio["config"] = structpb.NewStringValue(fmt.Sprintf(
			"/apis/networking.istio.io/v1/namespaces/%s/destination-rule/%s", rule.Key.Namespace, rule.Key.Name))
	}
	if s.MTLSDisabled != "" {
		d.Metadata.FilterMetadata["navarch"] = &structpb.Struct{Fields: map[string]*structpb.Value{"peers": structpb.NewStringValue(s.MTLSDisabled)}}
	}
	if s.TLS == traffic.Originate {
		istio["alpn_override"] = structpb.NewStringValue("false")
	}
}

// statName fills in a pattern of MeshConfig.outboundClusterStatName or inboundClusterStatName
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig). target is 0 where there is none.
func statName(pattern string, service *model.Service, host, subset string, port *model.ServicePort, target uint32) string {
	short, qualified := host, host
	if service.Key.Kind == model.KindService {
		short, qualified = service.Key.Name, service.Key.Name+"."+service.Key.Namespace
	}
	targetPort := ""
	if target != 0 {
		targetPort = strconv.FormatUint(uint64(target), 10)
	}
	return strings.NewReplacer(
		"%SERVICE_PORT_NAME%", port.GetName(),
		"%SERVICE_PORT%", strconv.FormatUint(uint64(port.GetNumber()), 10),
		"%SERVICE_FQDN%", host,
		"%SERVICE_NAME%", short,
		"%SERVICE%", qualified,
		"%SUBSET_NAME%", subset,
		"%TARGET_PORT%", targetPort,
	).Replace(pattern)
}
