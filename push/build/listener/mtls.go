package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// The ALPN protocols that clients of the mesh offer, and those that the proxy answers with (Istio's).
var (
	meshHTTP  = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	meshTCP   = []string{"istio-peer-exchange", "istio"}
	meshAny   = append(meshTCP[:2:2], meshHTTP...)
	httpReply = []string{"h2", "http/1.1"}
	tcpReply  = []string{"istio-peer-exchange", "h2", "http/1.1"}
)

const tlsSocket = "envoy.transport_sockets.tls"

// cipherSuites are the TLS 1.2 suites that servers accept (Istio's): AES-GCM alone, with forward secrecy first.
var cipherSuites = []string{"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256",
	"ECDHE-RSA-AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-GCM-SHA256"}

// terminatesMeshTLS reports whether the proxy terminates mTLS of the mesh, and so needs to detect TLS.
func (m MTLS) terminatesMeshTLS() bool { return m == Permissive || m == Strict }

// inboundChains returns the chains of one port, those for mTLS first; none for UDP. A Permissive port that is not
// stated to be HTTP also accepts other TLS, which the application terminates. A port with TLS of its own (Ended)
// accepts nothing else. Without a TLS inspector Envoy reports raw_buffer for every connection, so plain chains match
// that.
func (c Common) inboundChains(t inboundTraffic) []*listenerv3.FilterChain {
	if t.Protocol == model.Protocol_PROTOCOL_UDP {
		return nil
	}
	mode := t.MTLS
	t.closed = t.closed || mode == Refused
	var chains []*listenerv3.FilterChain
	add := func(http bool, transport string, alpn []string, socket *corev3.TransportSocket) {
		m := &listenerv3.FilterChainMatch{TransportProtocol: transport, ApplicationProtocols: alpn}
		if t.match != 0 {
			m.DestinationPort = wrapperspb.UInt32(t.match)
		}
		chain := &listenerv3.FilterChain{FilterChainMatch: m, TransportSocket: socket}
		if http {
			mtls := socket != nil && (!t.Ended.terminates() || t.Ended.requestsClientCertificate())
			chain.Name, chain.Filters = t.httpChain, c.inboundHTTP(t, mtls)
		} else {
			chain.Name, chain.Filters = t.tcpChain, c.inboundTCP(t)
		}
		chains = append(chains, chain)
	}
	if t.Ended.terminates() {
		transport := "tls"
		if !c.Caps.Has(xds.CapTLSInspector) {
			transport = "" // nothing detects TLS, so a match on it would match no connection
		}
		add(t.Protocol.IsHTTP(), transport, nil, tlsOf(c.serverTLS(t.Ended, httpReply)))
		chains[0].TransportSocketConnectTimeout = connectTimeout
		return chains
	}
	only := func(alpn []string) []string { // with Strict every TLS connection is the mesh's, whatever its ALPN
		if mode == Strict {
			return nil
		}
		return alpn
	}
	http, sniffed := t.Protocol.IsHTTP(), c.detectsHTTP(t.Protocol)
	if mode.terminatesMeshTLS() {
		switch {
		case http:
			add(true, "tls", only(meshAny), c.meshTLS(httpReply))
		case sniffed:
			add(true, "tls", meshHTTP, c.meshTLS(httpReply))
			add(false, "tls", only(meshTCP), c.meshTLS(tcpReply))
		default:
			add(false, "tls", only(meshAny), c.meshTLS(tcpReply))
		}
	}
	if mode == Strict {
		return chains
	}
	if sniffed {
		add(true, rawBuffer, plaintextHTTP, nil)
	}
	add(http, rawBuffer, nil, nil)
	if mode == Permissive && !http {
		add(false, "tls", nil, nil)
	}
	return chains
}

// tlsOf returns the transport socket that terminates TLS by a context.
func tlsOf(context *tlsv3.DownstreamTlsContext) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: tlsSocket, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: xds.Any(context)}}
}

// meshTLS returns the transport socket that terminates mTLS of the mesh and answers with the ALPN protocols. Clients
// need an identity of the mesh's trust domains. MeshConfig.meshMTLS applies to servers alone, as in Istio.
func (c Common) meshTLS(alpn []string) *corev3.TransportSocket {
	context := identity.Context(alpn, &tlsv3.CertificateValidationContext{
		MatchTypedSubjectAltNames: identity.Members(identity.TrustDomains(c.mesh()))})
	if c.mesh().GetMeshMTLS().GetMinProtocolVersion() == meshv1.MeshConfig_TLSConfig_TLSV1_3 {
		context.TlsParams.TlsMinimumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	context.TlsParams.CipherSuites = cipherSuites
	if stated := c.mesh().GetMeshMTLS().GetCipherSuites(); len(stated) > 0 {
		context.TlsParams.CipherSuites = stated
	}
	return &corev3.TransportSocket{Name: tlsSocket, ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: xds.Any(&tlsv3.DownstreamTlsContext{
			CommonTlsContext:         context,
			RequireClientCertificate: wrapperspb.Bool(true),
		}),
	}}
}
