package listener

import (
	"slices"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	configrbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	forwardv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	dynamicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	alpnv2 "istio.io/api/envoy/config/filter/http/alpn/v2alpha1"

	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/xds"
)

// tproxyMark is the mark by which the iptables rules of TPROXY mode know the proxy's own connections (Istio's).
const tproxyMark = 1337

// The configurations that never change, packed once. They are frozen: patches work on a copy of the listener.
var (
	routerConfig    = xds.Any(&routerv3.Router{})
	corsConfig      = xds.Any(&corsv3.Cors{})
	faultConfig     = xds.Any(&faultv3.HTTPFault{})
	grpcWebConfig   = xds.Any(&grpcwebv3.GrpcWeb{})
	grpcStatsConfig = xds.Any(&grpcstatsv3.FilterConfig{
		EmitFilterState:        true,
		PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: wrapperspb.Bool(false)},
	})
	// Rules without policies: nothing is allowed.
	denyHTTPConfig = xds.Any(&httprbacv3.RBAC{Rules: &configrbacv3.RBAC{Action: configrbacv3.RBAC_ALLOW}})
	denyTCPConfig  = xds.Any(&rbacv3.RBAC{Rules: &configrbacv3.RBAC{Action: configrbacv3.RBAC_ALLOW}, StatPrefix: tcpStatistics})
	alpnConfig     = xds.Any(&alpnv2.FilterConfig{AlpnOverride: []*alpnv2.FilterConfig_AlpnOverride{
		{UpstreamProtocol: alpnv2.FilterConfig_HTTP10, AlpnOverride: []string{"istio-http/1.0", "istio", "http/1.0"}},
		{UpstreamProtocol: alpnv2.FilterConfig_HTTP11, AlpnOverride: []string{"istio-http/1.1", "istio", "http/1.1"}},
		{UpstreamProtocol: alpnv2.FilterConfig_HTTP2, AlpnOverride: []string{"istio-h2", "istio", "h2"}},
	}})
	peerDiscovery     = []any{map[string]any{"istio_headers": map[string]any{}}, map[string]any{"workload_discovery": map[string]any{}}}
	peerPropagation   = []any{map[string]any{"istio_headers": map[string]any{}}}
	peerInbound       = typed("io.istio.http.peer_metadata.Config", map[string]any{"downstream_discovery": peerDiscovery, "downstream_propagation": peerPropagation})
	peerOutbound      = typed("io.istio.http.peer_metadata.Config", map[string]any{"upstream_discovery": peerDiscovery, "upstream_propagation": peerPropagation})
	requestIDConfig   = xds.Any(&uuidv3.UuidRequestIdConfig{UseRequestIdForTraceSampling: wrapperspb.Bool(false)})
	originalDstConfig = xds.Any(&originaldstv3.OriginalDst{})
	originalSrcConfig = xds.Any(&originalsrcv3.OriginalSrc{Mark: tproxyMark})
	httpInspection    = xds.Any(&httpinspectorv3.HttpInspector{})
	// Envoy's default buffer is 64 KiB per connection; a client hello is seldom more than this.
	tlsInspection = xds.Any(&tlsinspectorv3.TlsInspector{InitialReadBufferSize: wrapperspb.UInt32(512)})
)

// typed is the configuration of one of Istio's own extensions, whose messages no library of ours has.
func typed(name string, fields map[string]any) *anypb.Any {
	value, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err) // the literals above
	}
	return xds.Any(&udpav1.TypedStruct{TypeUrl: "type.googleapis.com/" + name, Value: value})
}

// httpFilters is the HTTP filters of a connection manager in Istio's order, of those that the proxy has.
func (c Common) httpFilters(h httpTraffic) []*hcmv3.HttpFilter {
	var filters []*hcmv3.HttpFilter
	add := func(wanted bool, name string, config *anypb.Any) {
		if wanted {
			filters = append(filters, &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}})
		}
	}
	in, headers := h.routes != nil, c.headers()
	stats := c.Telemetry.Stats(c.mesh(), c.Caps, in)
	add(c.Caps.Has(xds.CapMetadataExchange), "istio.metadata_exchange", peers(headers, in))
	providers, tokens, rules := h.demanded()
	filters = slices.Concat(filters, providers, c.httpExtensions(h.port, beforeAuthentication), tokens, c.httpExtensions(h.port, beforeAuthorization))
	add(h.closed && c.Caps.Has(xds.CapRBACHTTP), httpRBAC, denyHTTPConfig)
	filters = append(filters, rules...)
	filters = append(filters, c.httpExtensions(h.port, beforeStatistics, beforeRouter)...)
	add(h.grpcWeb && c.Caps.Has(xds.CapGRPCWeb), "envoy.filters.http.grpc_web", grpcWebConfig)
	add(c.Caps.Has(xds.CapGRPCStats), "envoy.filters.http.grpc_stats", grpcStatsConfig)
	add(!in && c.Caps.Has(xds.CapALPN), "istio.alpn", alpnConfig)
	add(c.Caps.Has(xds.CapFault), "envoy.filters.http.fault", faultConfig)
	add(c.Caps.Has(xds.CapCORS), "envoy.filters.http.cors", corsConfig)
	add(stats != nil, "istio.stats", stats)
	resolve := func(cache *forwardv3.DnsCacheConfig) {
		add(c.Caps.Has(xds.CapDynamicForward), "envoy.filters.http.dynamic_forward_proxy", xds.Any(&dynamicv3.FilterConfig{
			ImplementationSpecifier: &dynamicv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: cache}}))
	}
	for _, host := range h.dynamic {
		resolve(dnscache.Config(host, c.Families))
	}
	if h.unknown.ByName {
		resolve(h.unknown.Cache(c.Families))
	}
	add(true, "envoy.filters.http.router", router(headers))
	return filters
}

func listenerFilter(name string, config *anypb.Any) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config}}
}

func tlsInspector() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.tls_inspector", tlsInspection)
}

func httpInspector() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.http_inspector", httpInspection)
}

// inspected says on which ports a listener filter is wanted that waits for a connection's first bytes. It stays off the
// others: there the server may be the first to speak.
type inspected struct {
	on, off []uint32
	rest    bool // on all other ports
}

func (i *inspected) add(port uint32, wanted bool) {
	if wanted {
		i.on = append(i.on, port)
	} else {
		i.off = append(i.off, port)
	}
}

// by is the filter, where it is wanted at all.
func (i *inspected) by(f *listenerv3.ListenerFilter) []*listenerv3.ListenerFilter {
	slices.Sort(i.on)
	slices.Sort(i.off)
	switch {
	case i.rest:
		f.FilterDisabled = anyPort(i.off)
	case len(i.on) == 0:
		return nil
	default:
		f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: anyPort(i.on)},
		}
	}
	return []*listenerv3.ListenerFilter{f}
}

// anyPort matches connections to one of some ports; nil: there are none.
func anyPort(ports []uint32) *listenerv3.ListenerFilterChainMatchPredicate {
	var rules []*listenerv3.ListenerFilterChainMatchPredicate
	for _, port := range ports {
		rules = append(rules, &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
				DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1}, // the end is outside
			},
		})
	}
	switch len(rules) {
	case 0:
		return nil
	case 1:
		return rules[0]
	}
	return &listenerv3.ListenerFilterChainMatchPredicate{
		Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
			OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: rules},
		},
	}
}
