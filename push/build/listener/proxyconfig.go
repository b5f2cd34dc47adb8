package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
)

// inboundServer is the value of the header server in responses of inbound listeners and gateways, as in Istio.
// proxyHeaders may set a different value or disable the header.
const inboundServer = "istio-envoy"

// These values and tables translate proxyHeaders and connectionSettings of a ProxyConfig to Envoy's configuration
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#ProxyConfig; istio: pilot/pkg/networking/util,
// GetProxyHeadersFromProxyConfig; pilot/pkg/networking/core, applyConnectionSettingsToHCM).
var (
	quietRouterConfig = xds.Any(&routerv3.Router{SuppressEnvoyHeaders: true})
	// peerOutboundMesh is peerOutbound without metadata in requests to servers outside the mesh.
	peerOutboundMesh = peerMetadata("upstream", []any{map[string]any{"istio_headers": map[string]any{"skip_external_clusters": true}}})

	forwardings = map[meshv1.ForwardClientCertDetails]hcmv3.HttpConnectionManager_ForwardClientCertDetails{
		meshv1.ForwardClientCertDetails_UNDEFINED:           hcmv3.HttpConnectionManager_APPEND_FORWARD,
		meshv1.ForwardClientCertDetails_SANITIZE:            hcmv3.HttpConnectionManager_SANITIZE,
		meshv1.ForwardClientCertDetails_FORWARD_ONLY:        hcmv3.HttpConnectionManager_FORWARD_ONLY,
		meshv1.ForwardClientCertDetails_APPEND_FORWARD:      hcmv3.HttpConnectionManager_APPEND_FORWARD,
		meshv1.ForwardClientCertDetails_SANITIZE_SET:        hcmv3.HttpConnectionManager_SANITIZE_SET,
		meshv1.ForwardClientCertDetails_ALWAYS_FORWARD_ONLY: hcmv3.HttpConnectionManager_ALWAYS_FORWARD_ONLY,
	}
	underscores = map[istioUnderscores]corev3.HttpProtocolOptions_HeadersWithUnderscoresAction{
		meshv1.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_REJECT_REQUEST: corev3.HttpProtocolOptions_REJECT_REQUEST,
		meshv1.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_DROP_HEADER:    corev3.HttpProtocolOptions_DROP_HEADER,
	}
	escapedSlashes = map[istioEscapedSlashes]hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction{
		meshv1.ProxyConfig_ConnectionSettings_KEEP_UNCHANGED:        hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		meshv1.ProxyConfig_ConnectionSettings_REJECT_REQUEST:        hcmv3.HttpConnectionManager_REJECT_REQUEST,
		meshv1.ProxyConfig_ConnectionSettings_UNESCAPE_AND_REDIRECT: hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT,
		meshv1.ProxyConfig_ConnectionSettings_UNESCAPE_AND_FORWARD:  hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD,
	}
)

// These are short names of two types of Istio's ProxyConfig.
type (
	istioUnderscores    = meshv1.ProxyConfig_ConnectionSettings_HeadersWithUnderscoresAction
	istioEscapedSlashes = meshv1.ProxyConfig_ConnectionSettings_PathWithEscapedSlashesAction
)

// headers returns proxyHeaders of the ProxyConfig, or nil if proxyHeaders is not set.
func (c Common) headers() *meshv1.ProxyConfig_ProxyHeaders {
	return c.Proxy.Headers.Config().GetProxyHeaders()
}

// connections returns connectionSettings of the ProxyConfig, or nil if connectionSettings is not set.
func (c Common) connections() *meshv1.ProxyConfig_ConnectionSettings {
	return c.Proxy.Connections.Config().GetConnectionSettings()
}

// routerFilterConfig returns the configuration of the router, which is the last HTTP filter.
func routerFilterConfig(h *meshv1.ProxyConfig_ProxyHeaders) *anypb.Any {
	if h.GetEnvoyDebugHeaders().GetDisabled().GetValue() {
		return quietRouterConfig
	}
	return routerConfig
}

// peerMetadataConfig returns the configuration of Istio's filter peer_metadata for one direction. The filter exchanges
// workload metadata with the peer's proxy.
func peerMetadataConfig(h *meshv1.ProxyConfig_ProxyHeaders, inbound bool) *anypb.Any {
	switch {
	case inbound:
		return peerInbound
	case h.GetMetadataExchangeHeaders().GetMode() == meshv1.ProxyConfig_ProxyHeaders_IN_MESH:
		return peerOutboundMesh
	}
	return peerOutbound
}

// setHeaders applies proxyHeaders of the ProxyConfig, which determines the headers that the connection manager adds,
// changes and removes.
func (c Common) setHeaders(m *hcmv3.HttpConnectionManager, t httpTraffic) {
	h, in := c.headers(), t.routes != nil
	if in || t.server != nil {
		m.ServerName = inboundServer
	}
	switch {
	case h.GetServer().GetDisabled().GetValue():
		m.ServerName, m.ServerHeaderTransformation = "", hcmv3.HttpConnectionManager_PASS_THROUGH
	case h.GetServer().GetValue() != "":
		m.ServerName = h.GetServer().GetValue()
	}
	if h.GetRequestId().GetDisabled().GetValue() {
		m.GenerateRequestId = wrapperspb.Bool(false)
	}
	m.AppendXForwardedPort = h.GetXForwardedPort().GetEnabled().GetValue()
	if c.HeaderCase {
		if m.HttpProtocolOptions == nil {
			m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
		}
		m.HttpProtocolOptions.HeaderKeyFormat = xds.KeepHeaderCase()
	}
	forward := forwardings[h.GetForwardedClientCert()]
	if !in || !t.mtls && forward != hcmv3.HttpConnectionManager_ALWAYS_FORWARD_ONLY {
		return // by default Envoy removes the header x-forwarded-client-cert
	}
	m.ForwardClientCertDetails = forward
	if forward == hcmv3.HttpConnectionManager_APPEND_FORWARD || forward == hcmv3.HttpConnectionManager_SANITIZE_SET {
		d := h.GetSetCurrentClientCertDetails()
		defaultTrue := func(stated *wrapperspb.BoolValue) bool { return stated == nil || stated.GetValue() }
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
			Subject: wrapperspb.Bool(defaultTrue(d.GetSubject())),
			Uri:     defaultTrue(d.GetUri()), Dns: defaultTrue(d.GetDns()), Cert: d.GetCert().GetValue(), Chain: d.GetChain().GetValue(),
		}
	}
}

// setConnections applies connectionSettings of the ProxyConfig: timeouts, HTTP/2 limits, and the treatment of paths
// and header names. A field of connectionSettings overrides the mesh's setting and the node's IDLE_TIMEOUT.
func (c Common) setConnections(m *hcmv3.HttpConnectionManager) {
	s := c.connections()
	if s == nil {
		return
	}
	common := m.CommonHttpProtocolOptions
	if common == nil {
		common = &corev3.HttpProtocolOptions{}
	}
	if s.HttpIdleTimeout != nil {
		common.IdleTimeout = s.HttpIdleTimeout
	}
	common.MaxConnectionDuration, common.MaxStreamDuration = s.HttpMaxConnectionDuration, s.HttpMaxStreamDuration
	common.HeadersWithUnderscoresAction = underscores[s.HttpHeadersWithUnderscoresAction]
	if common.IdleTimeout != nil || common.MaxConnectionDuration != nil || common.MaxStreamDuration != nil ||
		common.HeadersWithUnderscoresAction != 0 {
		m.CommonHttpProtocolOptions = common
	}
	m.DrainTimeout = s.HttpDrainTimeout
	m.RequestTimeout, m.RequestHeadersTimeout = s.HttpRequestTimeout, s.HttpRequestHeadersTimeout
	if s.HttpStreamIdleTimeout != nil {
		m.StreamIdleTimeout = s.HttpStreamIdleTimeout
	}
	if s.HttpMaxConcurrentStreams != nil || s.Http2InitialStreamWindowSize != nil || s.Http2InitialConnectionWindowSize != nil {
		m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{MaxConcurrentStreams: unsigned(s.HttpMaxConcurrentStreams),
			InitialStreamWindowSize:     unsigned(s.Http2InitialStreamWindowSize),
			InitialConnectionWindowSize: unsigned(s.Http2InitialConnectionWindowSize)}
	}
	if s.HttpMergeSlashes != nil {
		m.MergeSlashes = s.HttpMergeSlashes.GetValue()
	}
	if action, stated := escapedSlashes[s.HttpPathWithEscapedSlashesAction]; stated {
		m.PathWithEscapedSlashesAction = action
	}
}

// setBuffer sets the limit of each connection's buffer, in bytes, from connectionSettings.
func (c Common) setBuffer(l *listenerv3.Listener) {
	l.PerConnectionBufferLimitBytes = unsigned(c.connections().GetListenerPerConnectionBufferLimitBytes())
}

// unsigned converts a number, and returns nil for nil. store/proxyconfig ensures that the number is not negative.
func unsigned(n *wrapperspb.Int32Value) *wrapperspb.UInt32Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt32(uint32(n.GetValue()))
}
