// Package listener draws listeners: a Spec in, an encoded Listener out.
//
// Owns: nothing.  Reads: its Specs and nothing else.  Never: the snapshot, a view, a clock.
package listener

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// MeshFields are the fields of MeshConfig that the builders here read: Specs have a mesh configuration with these alone. A test of
// push/inspect compares them with the code.
var MeshFields = []protoreflect.Name{
	"access_log_file", "access_log_format", "access_log_encoding", "disable_envoy_listener_log", "protocol_detection_timeout",
	"default_providers", "extension_providers", "path_normalization", "trust_domain", "trust_domain_aliases", "mesh_mTLS",
}

// Common is what every listener may depend on beside its own traffic.
type Common struct {
	Mesh *model.Mesh
	Caps xds.Caps
	xds.Listening
	Telemetry telemetry.Spec           // of its direction
	Patches   intern.List[model.Patch] // that may match this listener, or the routes within it (inbound)
	// Extensions are the filters of WasmPlugins and TrafficExtensions on this side of the proxy, by priority.
	Extensions intern.List[extension.Filter]
	// Proxy is what its ProxyConfig, or the mesh's, says of headers and connections, and HeaderCase whether names of HTTP/1 headers keep their case.
	Proxy      proxyconfig.Listeners
	HeaderCase bool
}

// Outbound is all that one outbound listener can depend on: 0.0.0.0_80, 10.96.0.11_9000, or the listener of a
// Sidecar's egress.
type Outbound struct {
	Common
	Name       string
	Bind       string // an IP, or unix://path
	Port       uint32
	BindToPort bool // false: reached from virtualOutbound by original destination
	// Route is the name of the route configuration that HTTP goes to (RDS over ADS); empty: no HTTP here.
	Route string
	// Sniff: the protocol is not known, so HTTP is what the HTTP inspector finds and the rest goes to TCP or Fallback.
	// False with a Route: the port is HTTP, and what is not goes to Fallback.
	Sniff bool
	// TCP are the chains for what is no HTTP, the first that matches wins.
	TCP intern.List[Chain]
	// Fallback is the cluster for what matches nothing; empty: the connection is closed.
	Fallback string
	GRPCWeb  bool // a service that HTTP goes to speaks gRPC-Web
	// Dynamic are the wildcard hosts among those that HTTP goes to whose names are resolved as clients ask for them, sorted.
	Dynamic intern.List[string]
	dnscache.Unknown
}

// Chain is one TCP filter chain. Empty matches match everything.
type Chain struct {
	SNI        intern.List[string]
	CIDRs      intern.List[string] // destination, "ip" or "ip/length"
	Targets    intern.List[Target] // one, or several by weight
	StatPrefix string              // the cluster's name, as a rule
	Protocol   model.Protocol      // of the port
	// Dynamic is the wildcard host that the one target is for, where names are resolved as clients ask for them (by SNI), and DynamicPort the port
	// there; empty: the target has its endpoints.
	Dynamic     string
	DynamicPort uint32
	Rule        *model.DestinationRule // of the host; nil: none applies
	Policy      traffic.Ref            // idle timeout, hashing
}

// Target is one cluster of a TCP chain.
type Target struct {
	Cluster string
	Weight  uint32 // of the sum of all; 0 where there is one target
}

// VirtualOutbound is all that the listener virtualOutbound can depend on.
type VirtualOutbound struct {
	Common
	Port             uint32 // 15001
	Passthrough      bool   // ALLOW_ANY, ALLOW_ANY_DYNAMIC_DNS: unknown destinations pass; else they end in the black hole
	EgressProxy      string // cluster that takes what passes through; empty: it goes where it was sent
	Transparent      bool   // TPROXY
	dnscache.Unknown        // with ByName plain HTTP goes to the route configuration xds.AllowAny
}

// VirtualInbound is all that the listener virtualInbound can depend on.
type VirtualInbound struct {
	Common
	Port        uint32 // 15006
	Ports       intern.List[InboundPort]
	Transparent bool
	Closed      bool                       // a policy that could not be understood selects the workload: nothing comes in
	Rest        MTLS                       // of ports that no service names
	Policies    intern.List[*model.Policy] // AuthorizationPolicies that select the workload
	// Authentications are the RequestAuthentications that select it: those of the root namespace first, of each the oldest first.
	Authentications intern.List[*model.Policy]
	Authorizers     intern.List[extauthz.Authorizer] // the providers that its CUSTOM policies name
}

// MTLS is how connections to a port are taken.
type MTLS uint8

// The ways of MTLS. Permissive and Strict are for proxies that have a certificate of the mesh, and a TLS inspector.
const (
	Plain      MTLS = iota // as they come: TLS is the application's
	Permissive             // mTLS of the mesh, and as they come
	Strict                 // mTLS of the mesh alone
	Refused                // not at all
)

// InboundPort is the traffic of one port of the workload.
type InboundPort struct {
	Port     uint32 // it arrives at
	Protocol model.Protocol
	Cluster  string // inbound|port||
	Host     string // of the service, for the virtual host's name; empty: none
	// ServicePort names the virtual host inbound|http|port.
	ServicePort uint32
	MTLS        MTLS
	Ended       ServerTLS // with MTLS Plain alone
}

// ServerTLS is TLS that ends at a port with certificates of files, not those of the mesh, as an ingress listener of a Sidecar says. Comparable; the
// zero ServerTLS is none. Protocols of such a port are those within TLS.
type ServerTLS struct {
	Mode             networkingv1.ServerTLSSettings_TLSmode // SIMPLE, MUTUAL or OPTIONAL_MUTUAL
	Certificate, Key string                                 // files of the proxy
	Authorities      string                                 // file of those that clients' certificates are from; of MUTUAL and OPTIONAL_MUTUAL
	Revoked          string                                 // file with their revocation lists; empty: none
	Ciphers, Curves  intern.List[string]                    // empty: Envoy's own
	// Least and Most are versions of TLS; TLS_AUTO: Envoy's own.
	Least, Most networkingv1.ServerTLSSettings_TLSProtocol
}

// Ingress is all that the listener of one Sidecar ingress with captureMode NONE can depend on.
type Ingress struct {
	Common
	Name   string
	Bind   string
	Also   intern.List[string] // IPs beside Bind
	Inner  InboundPort
	Closed bool
	// As of VirtualInbound.
	Policies        intern.List[*model.Policy]
	Authentications intern.List[*model.Policy]
	Authorizers     intern.List[extauthz.Authorizer]
}

// Added is a listener that an EnvoyFilter adds.
type Added struct {
	Patch model.Patch
}
