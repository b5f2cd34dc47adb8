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

// meshHTTP, meshTCP and meshAny are ALPN protocols that clients of the mesh offer. httpReply and tcpReply are the
// ALPN protocols that the proxy accepts. All are the same as in Istio.
var (
	meshHTTP  = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	meshTCP   = []string{"istio-peer-exchange", "istio"}
	meshAny   = append(meshTCP[:2:2], meshHTTP...)
	httpReply = []string{"h2", "http/1.1"}
	tcpReply  = []string{"istio-peer-exchange", "h2", "http/1.1"}
)

// tlsSocket is Envoy's name of the transport socket for TLS.
const tlsSocket = "envoy.transport_sockets.tls"

// cipherSuites are the TLS 1.2 suites that servers accept by default, as in Istio. All use AES-GCM. The suites with
// forward secrecy come first.
var cipherSuites = []string{"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256",
	"ECDHE-RSA-AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-GCM-SHA256"}

// terminatesMeshTLS reports whether the proxy terminates the mesh's mTLS. Such a proxy must detect TLS.
func (m MTLS) terminatesMeshTLS() bool { return m == Permissive || m == Strict }

// inboundChains returns the chains of one port, the chains for mTLS first. For UDP it returns nil. A Permissive port
// whose protocol is not HTTP also has a chain for TLS that the application terminates. If InboundPort.Ended is set, the
// port has only one chain, which terminates TLS with these settings. A chain for plain text matches the transport
// protocol raw_buffer. Without a TLS inspector, Envoy reports raw_buffer for every connection.
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
			transport = "" // TLS is not detected, so a match on "tls" would match no connection
		}
		add(t.Protocol.IsHTTP(), transport, nil, tlsOf(c.serverTLS(t.Ended, httpReply)))
		chains[0].TransportSocketConnectTimeout = connectTimeout
		return chains
	}
	unlessStrict := func(alpn []string) []string { // with Strict, every TLS connection is terminated, whatever its ALPN
		if mode == Strict {
			return nil
		}
		return alpn
	}
	http, sniffed := t.Protocol.IsHTTP(), c.detectsHTTP(t.Protocol)
	if mode.terminatesMeshTLS() {
		switch {
		case http:
			add(true, "tls", unlessStrict(meshAny), c.meshTLS(httpReply))
		case sniffed:
			add(true, "tls", meshHTTP, c.meshTLS(httpReply))
			add(false, "tls", unlessStrict(meshTCP), c.meshTLS(tcpReply))
		default:
			add(false, "tls", unlessStrict(meshAny), c.meshTLS(tcpReply))
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

// tlsOf returns the transport socket that terminates TLS with the settings of a TLS context.
func tlsOf(context *tlsv3.DownstreamTlsContext) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: tlsSocket, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: xds.Any(context)}}
}

// meshTLS returns the transport socket that terminates the mesh's mTLS and accepts the given ALPN protocols. Clients
// need an identity of the mesh's trust domains. As in Istio, MeshConfig.meshMTLS applies only to servers.
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
