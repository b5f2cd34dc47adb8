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

// tproxyMark is the socket mark of the proxy's own connections in Istio's iptables rules for TPROXY mode.
const tproxyMark = 1337

// These filter configurations are constant and encoded once. They are shared and read-only; patches change a copy of
// the listener.
var (
	routerConfig    = xds.Any(&routerv3.Router{})
	corsConfig      = xds.Any(&corsv3.Cors{})
	faultConfig     = xds.Any(&faultv3.HTTPFault{})
	grpcWebConfig   = xds.Any(&grpcwebv3.GrpcWeb{})
	grpcStatsConfig = xds.Any(&grpcstatsv3.FilterConfig{
		EmitFilterState:        true,
		PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: wrapperspb.Bool(false)},
	})
	// An RBAC filter with action ALLOW and without policies refuses everything.
	denyHTTPConfig = xds.Any(&httprbacv3.RBAC{Rules: &configrbacv3.RBAC{Action: configrbacv3.RBAC_ALLOW}})
	denyTCPConfig  = xds.Any(&rbacv3.RBAC{Rules: &configrbacv3.RBAC{Action: configrbacv3.RBAC_ALLOW}, StatPrefix: tcpStatistics})
	alpnConfig     = xds.Any(&alpnv2.FilterConfig{AlpnOverride: []*alpnv2.FilterConfig_AlpnOverride{
		{UpstreamProtocol: alpnv2.FilterConfig_HTTP10, AlpnOverride: []string{"istio-http/1.0", "istio", "http/1.0"}},
		{UpstreamProtocol: alpnv2.FilterConfig_HTTP11, AlpnOverride: []string{"istio-http/1.1", "istio", "http/1.1"}},
		{UpstreamProtocol: alpnv2.FilterConfig_HTTP2, AlpnOverride: []string{"istio-h2", "istio", "h2"}},
	}})
	peerDiscovery     = []any{map[string]any{"istio_headers": map[string]any{}}, map[string]any{"workload_discovery": map[string]any{}}}
	peerPropagation   = []any{map[string]any{"istio_headers": map[string]any{}}}
	peerInbound       = peerMetadata("downstream", peerPropagation)
	peerOutbound      = peerMetadata("upstream", peerPropagation)
	requestIDConfig   = xds.Any(&uuidv3.UuidRequestIdConfig{UseRequestIdForTraceSampling: wrapperspb.Bool(false)})
	originalDstConfig = xds.Any(&originaldstv3.OriginalDst{})
	originalSrcConfig = xds.Any(&originalsrcv3.OriginalSrc{Mark: tproxyMark})
	httpInspection    = xds.Any(&httpinspectorv3.HttpInspector{})
	// Envoy's default buffer is 64 KiB per connection. A client hello is seldom longer than 512 bytes.
	tlsInspection = xds.Any(&tlsinspectorv3.TlsInspector{InitialReadBufferSize: wrapperspb.UInt32(512)})
)

// peerMetadata encodes the configuration of Istio's filter peer_metadata for one side, "downstream" or "upstream".
func peerMetadata(side string, propagation []any) *anypb.Any {
	return typedStruct("io.istio.http.peer_metadata.Config",
		map[string]any{side + "_discovery": peerDiscovery, side + "_propagation": propagation})
}

// typedStruct encodes the configuration of one of Istio's own extensions as a TypedStruct, because this program has no
// Go type for its message. The argument name is the full name of the message.
func typedStruct(name string, fields map[string]any) *anypb.Any {
	value, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err) // impossible: the fields are literals of this package
	}
	return xds.Any(&udpav1.TypedStruct{TypeUrl: "type.googleapis.com/" + name, Value: value})
}

// httpFilters returns the HTTP filters of a connection manager in Istio's order. Filters that the proxy lacks are
// left out.
func (c Common) httpFilters(h httpTraffic) []*hcmv3.HttpFilter {
	var filters []*hcmv3.HttpFilter
	add := func(wanted bool, name string, config *anypb.Any) {
		if wanted {
			filters = append(filters, &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}})
		}
	}
	in, headers := h.routes != nil, c.headers()
	stats := c.Telemetry.Stats(c.mesh(), c.Caps, in || h.server != nil)
	add(c.Caps.Has(xds.CapMetadataExchange), "istio.metadata_exchange", peerMetadataConfig(headers, in))
	providers, tokens, rules := h.splitPolicyFilters()
	filters = slices.Concat(filters, providers, c.httpExtensions(h.port, beforeAuthentication), tokens, c.httpExtensions(h.port, beforeAuthorization))
	add(h.closed && c.Caps.Has(xds.CapRBACHTTP), httpRBAC, denyHTTPConfig)
	filters = append(filters, rules...)
	filters = append(filters, c.httpExtensions(h.port, beforeStatistics, beforeRouter)...)
	if h.grpcWeb && c.Caps.Has(xds.CapGRPCWeb) {
		filters = append(filters, grpcWebFilter(h.server != nil))
	}
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
	add(true, "envoy.filters.http.router", routerFilterConfig(headers))
	return filters
}

// grpcWebFilter returns the filter grpc_web. If disabled is true, the filter acts only on the virtual hosts that enable
// it.
func grpcWebFilter(disabled bool) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: xds.GRPCWebFilter, Disabled: disabled,
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: grpcWebConfig}}
}

// listenerFilter returns a listener filter with an encoded configuration.
func listenerFilter(name string, config *anypb.Any) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config}}
}

// tlsInspector returns the listener filter that detects TLS and reads SNI and ALPN.
func tlsInspector() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.tls_inspector", tlsInspection)
}

// httpInspector returns the listener filter that detects plain HTTP.
func httpInspector() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.http_inspector", httpInspection)
}

// inspectedPorts are the ports on which a listener filter waits for the first bytes of a connection. On the remaining
// ports the filter is disabled, because the server may be the first to send.
type inspectedPorts struct {
	on, off []uint32
	rest    bool // the filter is on for the ports that are in neither list
}

// add records whether the filter is on for a port.
func (i *inspectedPorts) add(port uint32, wanted bool) {
	if wanted {
		i.on = append(i.on, port)
	} else {
		i.off = append(i.off, port)
	}
}

// restrict disables f on all ports except the inspected ones, and returns f as a list. Without inspected ports it
// returns nil.
func (i *inspectedPorts) restrict(f *listenerv3.ListenerFilter) []*listenerv3.ListenerFilter {
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

// anyPort returns a predicate for connections to one of the ports, or nil without ports.
func anyPort(ports []uint32) *listenerv3.ListenerFilterChainMatchPredicate {
	var rules []*listenerv3.ListenerFilterChainMatchPredicate
	for _, port := range ports {
		rules = append(rules, &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
				DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1}, // End is exclusive
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
