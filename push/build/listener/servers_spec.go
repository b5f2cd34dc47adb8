package listener

import (
	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Servers is the Spec of one listener of a gateway: a socket, and the filter chains of the servers that share the
// socket. Each chain is encoded separately as a fragment (ServerChain.Fragment). An edit of one server therefore
// encodes one chain, and the fragments of the other chains are used again.
//
// If only filter chains of a listener change, Envoy replaces these chains and drains only their connections. An edit
// of one server must therefore change no field here except Chains and Patches. Telemetry determines the access log of
// connections that match no chain. Proxy determines the buffers and the PROXY protocol.
type Servers struct {
	Common
	Name string // name of the resource, such as 0.0.0.0_8080 or udp_0.0.0.0_8443
	Bind string // IP address, or unix://path
	Port uint32 // 1 to 65535; ignored for a Unix socket
	QUIC bool   // the listener is UDP, for HTTP/3; Bind must be an IP address
	// Opaque states that the listener's only server is TCP without TLS. Such a listener inspects no bytes, because the
	// server may be the first to send. Every other TCP listener inspects connections for TLS, if the proxy can, because
	// a server with TLS may be added.
	Opaque bool
	Chains intern.List[*xds.Fragment] // in order of precedence; at least one
}

// ServerChain is the Spec of one filter chain of a gateway's listener. Its Patches are ignored, because patches apply
// to Servers.
type ServerChain struct {
	Common
	Port uint32 // port of the listener
	QUIC bool   // the listener serves HTTP/3; TLS must then satisfy ServerTLS.OverQUIC
	// Names are the SNI names that the chain matches. Empty: the chain matches connections whose name no other chain of
	// the listener matches.
	Names intern.List[string]
	// Protocols are the ALPN protocols that the chain matches; empty: all. Only servers with AUTO_PASSTHROUGH set
	// Protocols.
	Protocols intern.List[string]
	TLS       ServerTLS  // TLS that the proxy terminates; the zero ServerTLS terminates no TLS
	HTTP      ServerHTTP // settings of an HTTP chain; without HTTP.Route, the chain is TCP
	TCP       Chain      // settings of a TCP chain; SNI and CIDRs must be empty
	Closed    bool       // all traffic is refused, because a policy that does not parse selects the gateway
	// Policies, Authentications and Authorizers have the same meaning as in VirtualInbound. All three are empty for
	// chains with AUTO_PASSTHROUGH.
	Policies        intern.List[*model.Policy]
	Authentications intern.List[*model.Policy]
	Authorizers     intern.List[extauthz.Authorizer]
}

// ServerHTTP holds the HTTP settings of a chain. If Route is empty, the chain is TCP, and the other fields are ignored.
type ServerHTTP struct {
	Route      string // name of the route configuration (RDS over ADS)
	StatPrefix string // prefix of the connection manager's statistics, without the delimiter
	// GRPCWeb adds the filter grpc_web to the chain. The filter is disabled, and virtual hosts enable it. GRPCWeb is
	// true for servers without TLS, which share the chain. A GRPC-Web server that is added later must not change the
	// chain.
	GRPCWeb bool
	// Internal lists the networks ("ip" or "ip/length") whose requests Envoy treats as internal. Empty: Envoy's
	// default.
	Internal intern.List[string]
}

// Secret names a secret of SDS and the server that delivers the secret. Secret is comparable. The zero Secret names no
// secret.
type Secret struct {
	Name    string
	Cluster string // cluster of the SDS server; xds.SDSCluster: the proxy's agent; empty: the control plane over ADS
}

// OverQUIC reports whether HTTP/3 may be served with the settings. The settings must terminate TLS and request no
// certificate from clients. Over HTTP/3 Envoy requests no client certificate. A server that requires a client
// certificate would therefore be open to everybody.
func (s ServerTLS) OverQUIC() bool { return s.terminates() && !s.requestsClientCertificate() }
