// Package listener builds Envoy's listeners. Each Spec, a value such as Outbound or VirtualInbound, contains all
// inputs of one listener. Its method Build encodes the listener as an xds.Resource, which is immutable. ServerChain is
// the Spec of a single filter chain, and has the method Fragment in place of Build. Equal Specs give equal results. No
// method changes the Spec, so all methods are safe for concurrent use.
//
// The patches of a Spec are the patches of EnvoyFilters that may match the listener. A capability (Caps) is a filter
// or feature that the proxy's build of Envoy or its agent has.
//
// Owns: nothing. Reads: its Specs only. Never: reads a clock, or configuration outside of its Specs.
package listener

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// MeshFields lists the fields of MeshConfig that the builders of this package and their helpers read. Specs that
// push/plan makes have a mesh configuration with only these fields. A test of push/inspect compares the list with the
// code.
var MeshFields = []protoreflect.Name{
	"access_log_file", "access_log_format", "access_log_encoding", "disable_envoy_listener_log", "protocol_detection_timeout",
	"default_providers", "extension_providers", "path_normalization", "trust_domain", "trust_domain_aliases", "mesh_mTLS",
}

// Common holds the inputs that every type of listener has.
type Common struct {
	Mesh *model.Mesh // nil: Istio's defaults
	Caps xds.Caps    // capabilities of the proxy; filters that the proxy lacks are left out
	// Listening has settings that the proxy's node states: the IP families, whether HTTP/1.0 is accepted, and the
	// idle timeout.
	xds.Listening
	Telemetry telemetry.Spec           // settings for the direction of the listener
	Patches   intern.List[model.Patch] // patches that may match the listener or the routes inside an inbound listener
	// Extensions are the filters of WasmPlugins and TrafficExtensions for the direction of the listener. Filters of one
	// phase keep their order in the listener.
	Extensions intern.List[extension.Filter]
	// Proxy holds the settings of headers and connections, from a ProxyConfig or the mesh's defaults.
	Proxy proxyconfig.Listeners
	// HeaderCase preserves the case of HTTP/1 header names.
	HeaderCase bool

	trace  *patch.Trace // records patches that change the listener during Effective; otherwise nil
	pieces *pieces      // splits the build during BuildInPieces; otherwise nil
}

// Outbound is the input of one outbound listener, such as 0.0.0.0_80, 10.96.0.11_9000, or the listener of a Sidecar's
// egress.
type Outbound struct {
	Common
	// Name is the name of the resource, such as 0.0.0.0_80.
	Name       string
	Bind       string // an IP, or unix://path
	Port       uint32
	BindToPort bool // false: the listener opens no socket; virtualOutbound passes connections to it
	// Route is the name of the route configuration for HTTP (RDS over ADS); empty: the listener has no HTTP chain.
	Route string
	// Sniff states that the protocol of a port with a Route is unknown; without a Route it has no effect. If Sniff, TCP
	// or Fallback is set, the HTTP inspector detects plain HTTP. Other connections go to TCP or Fallback, or are closed
	// if both are empty. If none of the three is set, every connection is HTTP.
	//
	// A proxy without the inspector cannot detect HTTP. If Sniff is set together with TCP or Fallback, such a proxy
	// does not use Route. In all other cases, it treats a connection as HTTP unless a chain of TCP with SNI or CIDRs
	// matches.
	Sniff bool
	// TCP are the chains for connections whose protocol is not HTTP. Envoy chooses the chain with the most specific
	// destination, and among these the chain with the most specific name. If several chains match the same combination
	// of destination and name, the first is used.
	TCP intern.List[Chain]
	// Fallback is the cluster for connections that no chain matches; empty: such connections are closed.
	Fallback string
	GRPCWeb  bool // a service behind Route speaks gRPC-Web
	// Dynamic are wildcard hosts of Route. If a client requests a name that a wildcard host covers, the proxy resolves
	// the name.
	Dynamic          intern.List[string]
	dnscache.Unknown // settings for requests over Route to unknown hosts
}

// Chain is one TCP filter chain. With empty SNI and CIDRs, it matches every connection. Invalid elements of SNI and
// CIDRs are skipped. If all elements of SNI or of CIDRs are invalid, the chain is left out. A chain with SNI is also
// left out if the proxy lacks a TLS inspector.
type Chain struct {
	// SNI are the server names, in upper or lower case; empty, or with the element "*": all names. A wildcard is valid
	// only as the whole first label, such as *.example.com.
	SNI intern.List[string]
	// CIDRs are the destination addresses, "ip" or "ip/length". Empty, or with a wildcard such as 0.0.0.0: all
	// destinations.
	CIDRs   intern.List[string]
	Targets intern.List[Target] // one, or several by weight; empty: connections are closed
	// StatPrefix is the prefix of the statistics. Empty: the name of the only cluster that receives connections, or
	// xds.BlackHole if there are several such clusters or none.
	StatPrefix string
	Protocol   model.Protocol // protocol of the port
	// Dynamic is a wildcard host, for a chain with one target. The proxy resolves the name in the client's SNI and
	// connects to DynamicPort. Dynamic is ignored if it is empty, or if the proxy lacks the filter for it. The proxy
	// then connects to the endpoints of the target's cluster.
	Dynamic     string
	DynamicPort uint32
	Rule        *model.DestinationRule // rule of the host, or nil; Build does not use it
	Policy      traffic.Ref            // idle timeout, maximum duration, hashing and tunnel of connections
}

// Target is one cluster of a TCP chain.
type Target struct {
	Cluster string
	Weight  uint32 // share of the sum of all weights; 0: no connections; ignored if the chain has one target
}

// VirtualOutbound is the input of the listener virtualOutbound.
type VirtualOutbound struct {
	Common
	Port             uint32 // 15001
	Passthrough      bool   // ALLOW_ANY or ALLOW_ANY_DYNAMIC_DNS; false: connections to unknown destinations are closed
	EgressProxy      string // cluster for connections that pass through; empty: their original destination
	Transparent      bool   // TPROXY
	dnscache.Unknown        // if ByName is set, plain HTTP is routed by the route configuration xds.AllowAny
}

// VirtualInbound is the input of the listener virtualInbound.
type VirtualInbound struct {
	Common
	Port        uint32                     // 15006
	Ports       intern.List[InboundPort]   // of several elements with one number, the first is used
	Transparent bool                       // TPROXY: connections to the application keep the client's address
	Closed      bool                       // all traffic is refused, because a policy that does not parse selects the workload
	Rest        MTLS                       // mode of the ports that are not in Ports
	Policies    intern.List[*model.Policy] // AuthorizationPolicies that select the workload
	// Authentications are the RequestAuthentications that select the workload.
	Authentications intern.List[*model.Policy]
	Authorizers     intern.List[extauthz.Authorizer] // providers that the CUSTOM policies name
}

// MTLS is the mode in which the proxy accepts connections to a port.
type MTLS uint8

// The modes of MTLS. Permissive and Strict require a proxy with a mesh certificate and a TLS inspector. An HTTP port is
// a port whose protocol is known to be HTTP.
const (
	// Plain: the proxy does not terminate the mesh's mTLS. InboundPort.Ended may terminate other TLS.
	Plain MTLS = iota
	// Permissive: the proxy terminates the mesh's mTLS, and accepts plain text. Other TLS passes unchanged to the
	// application, but is closed at an HTTP port.
	Permissive
	// Strict: the proxy terminates the mesh's mTLS. All other connections are closed.
	Strict
	// Refused: all traffic of the port is refused.
	Refused
)

// InboundPort is the traffic of one port of the workload.
type InboundPort struct {
	Port     uint32         // destination port of the connections
	Protocol model.Protocol // AUTO: the proxy detects HTTP; without an HTTP inspector, AUTO means TCP
	Cluster  string         // name of the cluster for connections to the application, such as inbound|8080||
	Host     string         // host of the service, for the names of spans; empty: no service has the port
	// ServicePort is the port of the service, which the name of the virtual host (inbound|http|port) contains.
	ServicePort uint32
	MTLS        MTLS
	// Ended has the settings of TLS that the proxy terminates with certificates of the workload, not of the mesh. It
	// takes precedence over the mesh's mTLS, so callers set Ended only if MTLS is Plain. The zero value: the proxy
	// terminates no such TLS.
	Ended ServerTLS
}

// ServerTLS holds the settings of TLS termination at a Sidecar's ingress listener or a Gateway's server. ServerTLS is
// comparable. The zero ServerTLS terminates no TLS. If InboundPort.Ended is set, InboundPort.Protocol is the protocol
// inside TLS.
type ServerTLS struct {
	// Mode is SIMPLE, MUTUAL, OPTIONAL_MUTUAL or ISTIO_MUTUAL. Only ISTIO_MUTUAL uses the mesh's certificates.
	Mode             networkingv1.ServerTLSSettings_TLSmode
	Certificate, Key string // paths of files of the proxy (PEM)
	// Certificate2 and Key2 are the files of a second certificate, whose type of key (RSA or ECDSA) differs from the
	// first. Each client receives a certificate that it can verify. Empty: there is no second certificate.
	Certificate2, Key2 string
	Secrets            intern.List[Secret] // one or two certificates over SDS, in place of the files above
	Authorities        string              // file with the CAs of clients' certificates, for MUTUAL and OPTIONAL_MUTUAL
	Trust              Secret              // the CAs over SDS, in place of the file Authorities
	Revoked            string              // file with the CAs' revocation lists; empty: no lists
	// Clients are the accepted names in clients' certificates; empty: all names are accepted.
	Clients    intern.List[string]
	Unverified bool // clients' certificates are accepted from every CA
	// Keys (SHA-256 of the public key, base64) and Hashes (SHA-256 of the certificate, hexadecimal, optionally with
	// colons) pin the certificates of clients. A certificate must match one element of Keys or Hashes. Malformed
	// elements are skipped. If all elements are malformed, no certificate is accepted. If Keys and Hashes are empty,
	// certificates are not pinned.
	Keys, Hashes    intern.List[string]
	Ciphers, Curves intern.List[string] // empty: Envoy's defaults
	// ALPN are the protocols that the proxy negotiates. If ALPN is empty, these are h3 with QUIC, otherwise h2 and
	// http/1.1. A gateway's TCP chain with ISTIO_MUTUAL and empty ALPN also accepts istio-peer-exchange.
	ALPN intern.List[string]
	// Least and Most are the minimum and maximum versions of TLS; TLS_AUTO: Envoy's default.
	Least, Most networkingv1.ServerTLSSettings_TLSProtocol
	// Foreign is the namespace of the object that names the files. It is empty if that is the namespace of the proxy.
	// Envoy itself does not read files for objects of other namespaces (ServerChain.Fault). Agents limit the number of
	// such files for each namespace.
	Foreign string
}

// Ingress is the input of the listener of one Sidecar ingress with captureMode NONE.
type Ingress struct {
	Common
	Name string              // name of the resource
	Bind string              // an IP, or unix://path
	Also intern.List[string] // further IPs of the listener
	// Inner is the traffic of the listener. Inner.Port is also the port of the listener; it is ignored for a Unix
	// socket.
	Inner InboundPort
	// Closed, Policies, Authentications and Authorizers have the same meaning as in VirtualInbound.
	Closed          bool
	Policies        intern.List[*model.Policy]
	Authentications intern.List[*model.Policy]
	Authorizers     intern.List[extauthz.Authorizer]
}

// Added is the input of a listener that an EnvoyFilter adds (LISTENER ADD).
type Added struct {
	Patch model.Patch // its value is the listener
}
