package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/build/telemetry"
)

// hcmName is Envoy's name of the HTTP connection manager.
const hcmName = "envoy.filters.network.http_connection_manager"

// statDelimiter ends the configured part of a statistic's name. The tag expressions in Istio's bootstrap split names
// at this delimiter.
const statDelimiter = ";"

// httpTraffic holds the settings in which the connection managers of one listener differ.
type httpTraffic struct {
	statPrefix    string
	port          uint32                      // outbound: port of the service; inbound: port of the workload; 0: any
	rds           string                      // outbound: name of the route configuration
	routes        *routev3.RouteConfiguration // inbound: the routes; nil: outbound
	http2         bool                        // the clients are known to speak HTTP/2
	grpcWeb       bool                        // the filter grpc_web is needed
	dynamic       []string                    // outbound: wildcard hosts; the proxy resolves the requested names
	unknown       dnscache.Unknown
	closed        bool           // every request is refused
	policyFilters *policyFilters // filters of security policies; nil: none
	mtls          bool           // inbound: a certificate was requested from the client
	server        *serverTraffic // settings of a gateway; nil: a sidecar
}

// connectionManager returns the HTTP connection manager, with Istio's settings for sidecars.
func (c Common) connectionManager(h httpTraffic) *listenerv3.Filter {
	m := &hcmv3.HttpConnectionManager{
		CodecType:         hcmv3.HttpConnectionManager_AUTO,
		StatPrefix:        h.statPrefix + statDelimiter,
		HttpFilters:       c.httpFilters(h),
		AccessLog:         c.accessLog(telemetry.Side{Inbound: h.routes != nil, HTTP: true}),
		Tracing:           c.Telemetry.Tracing.Build(c.mesh()),
		UpgradeConfigs:    []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		StreamIdleTimeout: durationpb.New(0), // off, because of long polls and streams; the timeouts of routes apply
		UseRemoteAddress:  wrapperspb.Bool(false),
		Proxy_100Continue: true,
	}
	c.normalizePaths(m)
	if t := c.Telemetry.Tracing; t.On && !t.RequestID { // true is Envoy's default
		m.RequestIdExtension = &hcmv3.RequestIDExtension{TypedConfig: requestIDConfig}
	}
	if c.HTTP10 {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AcceptHttp_10: true}
	}
	if c.Idle > 0 {
		m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(c.Idle)}
	}
	if h.http2 {
		m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
	}
	c.setHeaders(m, h)
	c.setConnections(m)
	c.setServer(m, h.server)
	if h.routes != nil {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: h.routes}
	} else {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: h.rds,
			ConfigSource:    adsSource(),
		}}
	}
	return filter(hcmName, m)
}

// adsSource returns the source of routes (RDS) and filter configurations (ECDS): ADS without a fetch timeout, as in
// Istio. Envoy therefore uses the old version of a changed listener until the new routes have arrived. A starting proxy
// becomes ready only when it has its routes. With a timeout, Envoy would answer 404 once the timeout has passed
// (measured). Waiting without limit is safe. The server answers unknown route names with an empty RouteConfiguration,
// and Envoy stops waiting after it has refused an answer.
func adsSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(0),
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// normalizePaths sets the path normalisation of meshConfig.pathNormalization. The default is BASE
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-ProxyPathNormalization).
func (c Common) normalizePaths(m *hcmv3.HttpConnectionManager) {
	kind := c.mesh().GetPathNormalization().GetNormalization()
	m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_KEEP_UNCHANGED
	m.NormalizePath = wrapperspb.Bool(kind != meshv1.MeshConfig_ProxyPathNormalization_NONE)
	switch kind {
	case meshv1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		m.MergeSlashes = true
	case meshv1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		m.MergeSlashes = true
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
}

// inboundRoutes returns the route configuration of an inbound port: one route, for all requests, to a cluster. The
// route has no timeout, because the caller's sidecar applies one. The deadline of a gRPC client applies, without an
// upper bound. As in Istio, Envoy sends a request again if the connection to the application is reset before the
// request was sent. HTTP/2 needs no retry policy for such resets, because Envoy's HTTP/2 client retries by itself.
func inboundRoutes(name, vhost, cluster, operation string, http2 bool) *routev3.RouteConfiguration {
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          durationpb.New(0),
		MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{
			MaxStreamDuration: durationpb.New(0), GrpcTimeoutHeaderMax: durationpb.New(0),
		},
	}
	if !http2 {
		action.RetryPolicy = &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: wrapperspb.UInt32(2)}
	}
	return &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    vhost,
			Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Name:      "default",
				Match:     &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Decorator: &routev3.Decorator{Operation: operation},
				Action:    &routev3.Route_Route{Route: action},
			}},
		}},
		// With validation, Envoy would refuse the listener while the cluster has not arrived.
		ValidateClusters: wrapperspb.Bool(false),
	}
}
