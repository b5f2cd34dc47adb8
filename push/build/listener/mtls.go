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

// What clients of the mesh offer by ALPN (Istio's), and what is answered.
var (
	meshHTTP  = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	meshTCP   = []string{"istio-peer-exchange", "istio"}
	meshAny   = append(meshTCP[:2:2], meshHTTP...)
	httpReply = []string{"h2", "http/1.1"}
	tcpReply  = []string{"istio-peer-exchange", "h2", "http/1.1"}
)

const tlsSocket = "envoy.transport_sockets.tls"

// cipherSuites are those that servers take of TLS 1.2 (Istio's): with forward secrecy where the client can, and AES-GCM always.
var cipherSuites = []string{"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256",
	"ECDHE-RSA-AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-GCM-SHA256"}

// mesh says whether the proxy ends mTLS of the mesh, and so has to look for TLS.
func (m MTLS) mesh() bool { return m == Permissive || m == Strict }

// inboundChains draws the chains of one port. Those of mTLS come first; a permissive port takes TLS of others too, where
// HTTP is not stated: the application ends it. Where no TLS is looked for, the transport is always raw_buffer: without
// a TLS inspector Envoy says so of every connection. A port that ends TLS of its own takes nothing else.
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
			chain.Name, chain.Filters = t.httpChain, c.inboundHTTP(t, socket != nil && (!t.Ended.ends() || t.Ended.asksClients()))
		} else {
			chain.Name, chain.Filters = t.tcpChain, c.inboundTCP(t)
		}
		chains = append(chains, chain)
	}
	if t.Ended.ends() {
		transport := "tls"
		if !c.Caps.Has(xds.CapTLSInspector) {
			transport = "" // nobody says of a connection that it is TLS
		}
		add(isHTTP(t.Protocol), transport, nil, c.serverTLS(t.Ended))
		chains[0].TransportSocketConnectTimeout = connectTimeout
		return chains
	}
	only := func(alpn []string) []string { // strict: all TLS is the mesh's
		if mode == Strict {
			return nil
		}
		return alpn
	}
	http, sniffed := isHTTP(t.Protocol), c.detected(t.Protocol)
	if mode.mesh() {
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

// meshTLS ends mTLS: clients must have an identity of the mesh's trust domains. What meshMTLS says is for servers, as with Istio's control plane.
func (c Common) meshTLS(alpn []string) *corev3.TransportSocket {
	context := identity.Context(alpn, &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: identity.Members(identity.TrustDomains(c.mesh()))})
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
