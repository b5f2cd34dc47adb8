package listener

import (
	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Servers is all that one listener of a gateway can depend on: a socket, and the filter chains of the servers that
// share it. Each chain is a fragment of its own (ServerChain), so an edit of one server encodes one chain, and leaves
// the bytes of the others as they are.
//
// Envoy replaces single filter chains, and drains the connections of those alone, as long as the rest of the listener
// stays the same. So the fields here, but for Chains and Patches, state what an edit of one server cannot change.
// Telemetry decides the log of connections that match no chain, and Proxy the buffers and the PROXY protocol.
type Servers struct {
	Common
	Name string // 0.0.0.0_8080, or udp_0.0.0.0_8443
	Bind string // IP address, or unix://path
	Port uint32 // 0 for a Unix socket
	QUIC bool   // the listener is UDP, for HTTP/3
	// Opaque: the one server of the listener is TCP without TLS. The listener inspects no bytes, because the server may
	// be the first to speak. All other listeners look for TLS, also those of HTTP alone: a server with TLS may join them.
	Opaque bool
	Chains intern.List[*xds.Fragment] // in order of precedence; at least one
}

// ServerChain is all that one filter chain of a gateway's listener can depend on. Patches belong to Servers, and stay
// empty here.
type ServerChain struct {
	Common
	Port uint32 // of the listener
	QUIC bool   // for a listener of HTTP/3; clients of such a chain show no certificate (ServerTLS.OverQUIC)
	// Names are the SNI names that lead to the chain, in lower case, sorted; empty: all connections that no other chain of
	// the listener takes.
	Names intern.List[string]
	// Protocols are the ALPN protocols that lead to the chain; empty: all. For AUTO_PASSTHROUGH.
	Protocols intern.List[string]
	TLS       ServerTLS // ends TLS; the zero ServerTLS passes bytes on as they come
	HTTP      ServerHTTP
	TCP       Chain // of a chain without HTTP: targets, statistics, policy; its SNI and CIDRs stay empty
	Closed    bool  // a policy that could not be understood selects the gateway: nothing passes
	// As of VirtualInbound. They stay empty for chains of AUTO_PASSTHROUGH.
	Policies        intern.List[*model.Policy]
	Authentications intern.List[*model.Policy]
	Authorizers     intern.List[extauthz.Authorizer]
}

// ServerHTTP describes the HTTP of a chain. The zero value means that the chain is TCP.
type ServerHTTP struct {
	Route      string // name of the route configuration (RDS over ADS)
	StatPrefix string // of the connection manager, without the delimiter
	GRPCWeb    bool   // the server's protocol is GRPC-Web
	// Internal lists the networks of the mesh ("ip/length"). Requests from them count as internal; empty: Envoy's choice.
	Internal intern.List[string]
}

// Secret names a secret of SDS and its server. It is comparable. The zero Secret names no secret.
type Secret struct {
	Name    string
	Cluster string // that serves it by gRPC, xds.SDSCluster for the proxy's agent; empty: the control plane, over ADS
}

// OverQUIC says whether HTTP/3 may be served with these settings: Envoy asks no client for a certificate there, so a
// server that asks for one would be open to everybody.
func (s ServerTLS) OverQUIC() bool { return s.terminates() && !s.requestsClientCertificate() }
