package main

import (
	"fmt"
	"net"
	"strconv"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// xdsCluster is the name by which dashboards and stock tools know the way to the control plane.
const xdsCluster = "xds-grpc"

// statsTags turn Envoy's dotted names into the labels that dashboards for istio-proxy read.
var statsTags = [][2]string{
	{"cluster_name", `^cluster\.((.+?(\..+?\.svc\.cluster\.local)?)\.)`},
	{"tcp_prefix", `^tcp\.((.*?)\.)\w+?$`},
	{"response_code", `(_rq(_(\d{3}))$)`},
	{"response_code_class", `(_rq(_(\dxx))$)`},
	{"http_conn_manager_listener_prefix", `^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"http_conn_manager_prefix", `^http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"listener_address", `^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
}

// bootstrap draws Envoy's start-up configuration: who it is, its admin address ("ip:port"), one way to everything else,
// delta ADS over the relay's socket, and the socket of its certificates (sds; empty: none).
func bootstrap(id *identity, admin, socket, sds string) (*bootstrapv3.Bootstrap, error) {
	adminAddr, err := address(admin)
	if err != nil {
		return nil, fmt.Errorf("admin address %q: %w", admin, err)
	}
	clusters, err := socketClusters(socket, sds)
	if err != nil {
		return nil, err
	}
	runtime, err := structpb.NewStruct(map[string]any{"re2.max_program_size.error_level": 32768})
	if err != nil {
		return nil, err
	}
	return &bootstrapv3.Bootstrap{
		Node:             id.node,
		Admin:            &bootstrapv3.Admin{Address: adminAddr},
		StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: clusters},
		DynamicResources: dynamicResources(),
		StatsConfig:      statsConfig(id.proxy.GetProxyStatsMatcher()),
		// 38 % less main-thread CPU with 1,000 clusters (measured): statistics of a cluster are made by its first use.
		DeferredStatOptions: &bootstrapv3.Bootstrap_DeferredStatOptions{EnableDeferredCreationStats: true},
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
			{Name: "static", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: runtime}},
			{Name: "admin", LayerSpecifier: &bootstrapv3.RuntimeLayer_AdminLayer_{AdminLayer: &bootstrapv3.RuntimeLayer_AdminLayer{}}},
		}},
	}, nil
}

func dynamicResources() *bootstrapv3.Bootstrap_DynamicResources {
	ads := func() *corev3.ConfigSource {
		return &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			ResourceApiVersion:    corev3.ApiVersion_V3,
			InitialFetchTimeout:   durationpb.New(0), // for ever: an Envoy without configuration must not look ready
		}
	}
	return &bootstrapv3.Bootstrap_DynamicResources{
		CdsConfig: ads(),
		LdsConfig: ads(),
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			// Without it the node, 61 KB, is in every request, ACKs too.
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
				ClusterName: xdsCluster,
				RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
					BaseInterval: durationpb.New(100 * time.Millisecond), MaxInterval: durationpb.New(time.Second),
				}},
			}}}},
		},
	}
}

// sdsCluster is the name that the control plane's configuration says certificates come from, as with stock agents.
const sdsCluster = "sds-grpc"

// socketClusters are the relay, and the agent's certificates where it has them.
func socketClusters(socket, sds string) (all []*clusterv3.Cluster, err error) {
	for _, c := range [][2]string{{xdsCluster, socket}, {sdsCluster, sds}} {
		if c[1] == "" {
			continue
		}
		cluster, err := socketCluster(c[0], c[1])
		if err != nil {
			return nil, err
		}
		all = append(all, cluster)
	}
	return all, nil
}

// socketCluster is a Unix socket of the agent. The keepalive notices one that hangs.
func socketCluster(name, socket string) (*clusterv3.Cluster, error) {
	http, err := anypb.New(&upstreamhttpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
				ConnectionKeepalive: &corev3.KeepaliveSettings{Interval: durationpb.New(10 * time.Second), Timeout: durationpb.New(5 * time.Second)},
			}},
		}},
	})
	if err != nil {
		return nil, err
	}
	pipe := &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: socket}}}
	return &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                durationpb.New(time.Second),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: pipe}}}},
		}}},
	}, nil
}

// statsConfig keeps all statistics unless the proxy's configuration chooses.
func statsConfig(m *meshv1alpha1.ProxyConfig_ProxyStatsMatcher) *metricsv3.StatsConfig {
	cfg := &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false)}
	for _, t := range statsTags {
		cfg.StatsTags = append(cfg.StatsTags, &metricsv3.TagSpecifier{TagName: t[0], TagValue: &metricsv3.TagSpecifier_Regex{Regex: t[1]}})
	}
	var want []*matcherv3.StringMatcher
	for _, v := range m.GetInclusionPrefixes() {
		want = append(want, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: v}})
	}
	for _, v := range m.GetInclusionSuffixes() {
		want = append(want, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: v}})
	}
	for _, v := range m.GetInclusionRegexps() {
		want = append(want, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: v}}})
	}
	if len(want) == 0 {
		return cfg
	}
	// Always kept: what readiness, draining and every dashboard need.
	for _, v := range []string{"cluster_manager", "listener_manager", "server", "cluster." + xdsCluster} {
		want = append(want, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: v}})
	}
	want = append(want, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: activeConnections}})
	cfg.StatsMatcher = &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{InclusionList: &matcherv3.ListStringMatcher{Patterns: want}}}
	return cfg
}

func address(hostPort string) (*corev3.Address, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || net.ParseIP(host) == nil {
		return nil, fmt.Errorf("want IP:port")
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}, nil
}

// renderJSON is the form Envoy reads.
func renderJSON(b *bootstrapv3.Bootstrap) ([]byte, error) {
	if err := b.ValidateAll(); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return protojson.MarshalOptions{UseProtoNames: true, Multiline: true}.Marshal(b)
}
