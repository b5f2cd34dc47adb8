// Package listener builds Envoy's listeners. Each Spec, a value such as Outbound or VirtualInbound, contains all
// inputs of one listener. Its method Build encodes the listener as an xds.Resource, which is immutable. Equal Specs
// give equal resources. No method changes the Spec, so all methods are safe for concurrent use.
//
// The patches of a Spec are the patches of EnvoyFilters that may match the listener. A capability (Caps) is a filter
// or feature that the proxy's build of Envoy or its agent has.
//
// Owns: nothing. Reads: its Specs only. Never: the snapshot of all records, a view (the configuration of a group of
// proxies), a clock.
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

// MeshFields lists the fields of MeshConfig that the builders of this package read. The mesh configuration of a Spec
// contains no other fields. A test of push/inspect compares the list with the code.
var MeshFields = []protoreflect.Name{
	"access_log_file", "access_log_format", "access_log_encoding", "disable_envoy_listener_log", "protocol_detection_timeout",
	"default_providers", "extension_providers", "path_normalization", "trust_domain", "trust_domain_aliases", "mesh_mTLS",
}

// Common holds the inputs that every type of listener has.
type Common struct {
	Mesh *model.Mesh // nil: Istio's defaults
	Caps xds.Caps    // capabilities of the proxy; filters that it lacks are left out
	// Listening has settings that the proxy's node states: the IP families, whether HTTP/1.0 is accepted, and the
	// idle timeout.
	xds.Listening
	Telemetry telemetry.Spec           // settings for the direction of the listener
	Patches   intern.List[model.Patch] // patches that may match the listener or the routes inside an inbound listener
	// Extensions are the filters of WasmPlugins and TrafficExtensions for the direction of the listener, by priority.
	Extensions intern.List[extension.Filter]
	// Proxy holds the settings of headers and connections. They are from the proxy's ProxyConfig, or else from the
	// mesh's default.
	Proxy proxyconfig.Listeners
	// HeaderCase preserves the case of HTTP/1 header names.
	HeaderCase bool

	trace *patch.Trace // records patches that change the listener during Effective; otherwise nil
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
	// Sniff states that the protocol of a port with a Route is unknown. If Sniff, TCP or Fallback is set, the HTTP
	// inspector detects HTTP, and connections without HTTP go to TCP or Fallback. If none of the three is set, every
	// connection is HTTP. If the proxy lacks the inspector, the protocol of all connections is fixed. It is TCP if
	// Sniff is set together with TCP or Fallback, and HTTP otherwise.
	Sniff bool
	// TCP are the chains for connections whose protocol is not HTTP. The first chain that matches receives a
	// connection.
	TCP intern.List[Chain]
	// Fallback is the cluster for connections that no chain matches; empty: such connections are closed.
	Fallback string
	GRPCWeb  bool // a service behind Route speaks gRPC-Web
	// Dynamic are the wildcard hosts of Route, sorted. If a client requests a name that one of them covers, the proxy
	// resolves the name.
	Dynamic          intern.List[string]
	dnscache.Unknown // settings of requests to unknown hosts by Route
}

// Chain is one TCP filter chain. Empty SNI and CIDRs match every connection.
type Chain struct {
	SNI        intern.List[string]
	CIDRs      intern.List[string] // destination addresses, "ip" or "ip/length"
	Targets    intern.List[Target] // one, or several by weight; empty: connections are closed
	StatPrefix string              // prefix of the statistics; empty: the name of the cluster
	Protocol   model.Protocol      // protocol of the port
	// Dynamic is a wildcard host, for a chain with one target. The proxy resolves the name in the client's SNI and
	// connects to DynamicPort. Empty: the proxy connects to the endpoints of the target's cluster.
	Dynamic     string
	DynamicPort uint32
	Rule        *model.DestinationRule // the rule of the host; nil: no rule applies
	Policy      traffic.Ref            // idle timeout, hashing and tunnel of the target
}

// Target is one cluster of a TCP chain.
type Target struct {
	Cluster string
	Weight  uint32 // share of the sum of all weights; ignored if the chain has one target
}

// VirtualOutbound is the input of the listener virtualOutbound.
type VirtualOutbound struct {
	Common
	Port             uint32 // 15001
	Passthrough      bool   // ALLOW_ANY or ALLOW_ANY_DYNAMIC_DNS; false: connections to unknown destinations are closed
	EgressProxy      string // cluster for passed-through connections; empty: their original destination
	Transparent      bool   // TPROXY
	dnscache.Unknown        // if ByName is set, plain HTTP goes to the route configuration xds.AllowAny
}

// VirtualInbound is the input of the listener virtualInbound.
type VirtualInbound struct {
	Common
	Port        uint32 // 15006
	Ports       intern.List[InboundPort]
	Transparent bool                       // TPROXY: connections to the application keep the client's address
	Closed      bool                       // all traffic is refused: a policy that does not parse selects the workload
	Rest        MTLS                       // mode of the ports that are not in Ports
	Policies    intern.List[*model.Policy] // AuthorizationPolicies that select the workload
	// Authentications are the RequestAuthentications that select the workload: those of the root namespace first, and
	// the oldest first within each namespace.
	Authentications intern.List[*model.Policy]
	Authorizers     intern.List[extauthz.Authorizer] // providers that the CUSTOM policies name
}

// MTLS is the mode in which the proxy accepts connections to a port.
type MTLS uint8

// The modes of MTLS. Permissive and Strict require a proxy with a mesh certificate and a TLS inspector.
const (
	Plain      MTLS = iota // bytes pass unchanged; the application terminates TLS, if any
	Permissive             // the mesh's mTLS is terminated; other bytes pass unchanged
	Strict                 // the mesh's mTLS is terminated; other connections are closed
	Refused                // every connection is refused
)

// InboundPort is the traffic of one port of the workload.
type InboundPort struct {
	Port     uint32         // destination port of the connections
	Protocol model.Protocol // AUTO: the proxy detects HTTP
	Cluster  string         // inbound|port||
	Host     string         // host of the service, for the names of spans; empty: no service has the port
	// ServicePort is the port of the service, which the name of the virtual host (inbound|http|port) contains.
	ServicePort uint32
	MTLS        MTLS
	// Ended has the settings of TLS that the proxy terminates with certificates of the workload, not of the mesh.
	// Callers set Ended only if MTLS is Plain. The zero value: the proxy terminates no such TLS.
	Ended ServerTLS
}

// ServerTLS holds the settings of TLS termination at a Sidecar's ingress listener or a Gateway's server. It is
// comparable. The zero ServerTLS terminates no TLS. For a port with such settings, InboundPort.Protocol is the
// protocol inside TLS.
type ServerTLS struct {
	// Mode is SIMPLE, MUTUAL, OPTIONAL_MUTUAL or ISTIO_MUTUAL. Only ISTIO_MUTUAL uses the mesh's certificates.
	Mode             networkingv1.ServerTLSSettings_TLSmode
	Certificate, Key string // files of the proxy
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
	// Keys (SHA-256 of the public key, base64) and Hashes (SHA-256 of the certificate, hexadecimal) pin the
	// certificates of clients. A certificate must match one element of Keys or Hashes; both empty: certificates are
	// not pinned.
	Keys, Hashes    intern.List[string]
	Ciphers, Curves intern.List[string] // empty: Envoy's defaults
	ALPN            intern.List[string] // protocols that the proxy negotiates; empty: as for the port's Protocol
	// Least and Most are the minimum and maximum versions of TLS; TLS_AUTO: Envoy's default.
	Least, Most networkingv1.ServerTLSSettings_TLSProtocol
	// Foreign is the namespace of the object that names the files, if it is not the proxy's. Envoy does not read such
	// files itself (ServerChain.Fault), and agents bound their number for each namespace (xds.OwnedFile).
	Foreign string
}

// Ingress is the input of the listener of one Sidecar ingress with captureMode NONE.
type Ingress struct {
	Common
	Name string
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
