package cluster

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

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
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Build encodes the cluster. Settings that Envoy would refuse are left out or changed. Patches that do not decode, or
// whose result Envoy would refuse, are left out. Build fails if the service has no port with the number Port. It also
// fails if the cluster without patches violates a constraint of Envoy's API, or if the cluster does not encode. The
// error names the cluster.
func (s Outbound) Build() (*xds.Resource, error) {
	r, _, err := s.build(nil)
	return r, err
}

// Problems returns a model.Problem for most settings that Build leaves out or changes, and a patch.Left for each patch
// that Build leaves out. It also returns a model.Problem for each patch that states another name, which Build ignores.
// The last element is the error of Build, if any. The result is nil if there is nothing to report. Problems builds the
// cluster.
func (s Outbound) Problems() []error {
	_, problems, err := s.build(nil)
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

// protocol returns the protocol of the port, or TCP if connections are forwarded by SNI.
func (s Outbound) protocol(port *model.ServicePort) model.Protocol {
	if s.BySNI {
		return model.Protocol_PROTOCOL_TCP
	}
	return port.Protocol
}

// build returns the resource, the problems without the error of Build, and the error of Build. The argument t records
// patches that change the cluster.
func (s Outbound) build(t *patch.Trace) (*xds.Resource, []error, error) {
	name := xds.OutboundCluster(s.Port, s.Subset, s.Host)
	if s.BySNI {
		name = xds.SNICluster(s.Port, s.Subset, s.Host)
	}
	port := s.port()
	if port == nil {
		return nil, nil, fmt.Errorf("cluster %s: %v has no port %d", name, s.Service.Key, s.Port)
	}
	p := s.Policy.Get()
	d := newBuilder(name, discoveries[s.Discovery], s.Connection, s.Mesh)
	d.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: percent(0)}
	s.setMetadata(d)
	if pattern := s.Mesh.Spec.GetOutboundClusterStatName(); pattern != "" {
		d.AltStatName = statName(pattern, s.Service, s.Host, s.Subset, port, 0) + statDelimiter
	}
	switch protocol := s.protocol(port); protocol {
	case model.Protocol_PROTOCOL_HTTP2, model.Protocol_PROTOCOL_GRPC, model.Protocol_PROTOCOL_GRPC_WEB:
		d.useHTTP2()
	case model.Protocol_PROTOCOL_AUTO:
		if !s.Plainly {
			d.useClientProtocol()
		}
	default: // HTTP/1.1 and protocols other than HTTP need no options
	}
	if s.Upgrade {
		d.useHTTP2()
	}
	if s.HeaderCase && !s.BySNI && (port.Protocol == model.Protocol_PROTOCOL_HTTP || port.Protocol == model.Protocol_PROTOCOL_AUTO) {
		d.keepHeaderCase()
	}
	d.setConnectionPool(p.Pool, p.RetryBudget)
	d.setKeepalive(s.Connection.Keepalive)
	d.setOutlierDetection(p)
	d.setLoadBalancer(p)
	s.setEndpoints(d)
	if s.Discovery != traffic.OriginalDst && s.Discovery != traffic.Dynamic {
		s.setLocalityBalancing(d)
	}
	s.setTransportSocket(d, p)
	if s.Discovery == traffic.Dynamic && s.TLS != traffic.Closed {
		d.useDynamicForwardProxy(dnscache.Config(s.Host, s.Families))
	}
	r, err := d.patchAndEncode(s.Patches.All(), t)
	return r, d.problems, err
}

// port returns the service port with the number s.Port, or nil.
func (s Outbound) port() *model.ServicePort {
	for _, p := range s.Service.Spec.Ports {
		if p.Number == s.Port {
			return p
		}
	}
	return nil
}

// discoveries maps each type of discovery to Envoy's type of cluster.
var discoveries = map[traffic.Discovery]clusterv3.Cluster_DiscoveryType{
	traffic.EDS: clusterv3.Cluster_EDS, traffic.StrictDNS: clusterv3.Cluster_STRICT_DNS, traffic.LogicalDNS: clusterv3.Cluster_LOGICAL_DNS,
	traffic.OriginalDst: clusterv3.Cluster_ORIGINAL_DST,
	traffic.Dynamic:     clusterv3.Cluster_STATIC, // useDynamicForwardProxy replaces it
}

// setLocalityBalancing sets how Envoy balances among localities of one priority: by weights, by zones, or without
// preference. Only a proxy with xds.CapSelfDiscovery needs a setting for no preference, because it prefers its own zone
// by default (envoy: configuration/upstream/cluster_manager/cluster_runtime, upstream.zone_routing.enabled).
func (s Outbound) setLocalityBalancing(d *builder) {
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

// setEndpoints sets the source of the endpoints.
func (s Outbound) setEndpoints(d *builder) {
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
		s.setDNS(d)
	case traffic.OriginalDst, traffic.Dynamic:
	}
}

// useDynamicForwardProxy makes the cluster resolve the names that filters of the listeners pass to it
// (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/http/http_proxy). By default, Envoy checks that the
// server's certificate is for the resolved name. A DestinationRule switches this check off if it states an SNI or the
// server's names, or skips the verification.
func (d *builder) useDynamicForwardProxy(cache *forwardv3.DnsCacheConfig) {
	config := &dynamicv3.ClusterConfig{ClusterImplementationSpecifier: &dynamicv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: cache}}
	if d.http != nil { // without HTTP options Envoy sets auto_sni and auto_san_validation itself
		up := d.http.GetUpstreamHttpProtocolOptions()
		config.AllowInsecureClusterOptions = !up.GetAutoSni() || !up.GetAutoSanValidation()
	}
	d.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.dynamic_forward_proxy", TypedConfig: xds.Any(config)}}
	d.LbPolicy, d.LbConfig, d.CommonLbConfig = clusterv3.Cluster_CLUSTER_PROVIDED, nil, nil
}

// setMetadata sets the cluster's metadata, such as the service, the port, the subset, the DestinationRule and
// MTLSDisabled.
func (s Outbound) setMetadata(d *builder) {
	d.setServiceMetadata(s.Host, s.Service)
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
		peers := map[string]*structpb.Value{"peers": structpb.NewStringValue(s.MTLSDisabled)}
		d.Metadata.FilterMetadata["navarch"] = &structpb.Struct{Fields: peers}
	}
	if s.TLS == traffic.Originate {
		istio["alpn_override"] = structpb.NewStringValue("false")
	}
}

// statName expands a pattern of MeshConfig.outboundClusterStatName or inboundClusterStatName
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig). The argument target is the
// workload's port for an inbound cluster, and 0 for an outbound cluster.
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
