// Package gateways merges the servers of the Gateways that select one router into the listeners that the router binds.
//
// A server of a Gateway states a port, a protocol, hosts, and the termination of TLS. Several servers, even of
// different namespaces, may state the same port. Merge decides which servers a router (a gateway proxy) serves. It
// visits the Gateways from the oldest to the youngest. It leaves out a server if Envoy could not serve the server
// together with the servers kept so far, or would refuse the listener. A server that is left out becomes a Conflict
// (istio: pilot/pkg/model/gateway.go, mergeGateways). The Conflict names the winner if an older server is the reason.
//
// Each decision depends on older servers alone. So a younger Gateway never changes the served servers and hosts of an
// older one, or the names of their listeners and route configurations. Istiod visits the Gateways in the same order.
// Gateways of the same second are ordered by name, then by namespace.
//
// Where Envoy accepts istiod's listeners, the result is that of istiod, with these exceptions:
//   - A server that is left out does not occupy its hosts: younger servers may have them.
//   - A host is occupied on each bind (address) that has a server for the host. Equal addresses are one bind.
//   - If a server has the host "*", its other host names are occupied too, although its filter chain matches every
//     name.
//   - If an older server listens at all addresses of a port, a server of another namespace cannot bind one of these
//     addresses, unless a still older server binds the address.
//   - A TCP server without TLS does not share a port with servers with TLS of another namespace, unless a server with
//     TLS of its own namespace came first.
//   - A server cannot use the ports of the agent and of Envoy itself, or the folders of their Unix sockets.
//   - All addresses of Router.Wildcards mean an empty bind. A bind with an IPv6 zone is refused.
//
// Where Envoy would refuse istiod's listener, the older server or host wins.
//
// The filter chains of a server that passes TLS through are selected by the SNI hosts of VirtualServices. Merge
// compares only hosts of servers. The caller has to compare these SNI hosts with each other, with the names of servers
// that terminate TLS (func Names), and with the servers without TLS, which get all other connections. It also has to
// add a filter chain for host names beside "*", if a more specific wildcard of another server covers them.
//
// Route configurations have the same names as istiod's, because EnvoyFilters match the names and tools show them.
//
// Owns: nothing. Reads: the records in its arguments, and the agent's ports (store/scrape). Never: reads
// VirtualServices, proxies or a clock; builds protobufs.
package gateways

import (
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Router has the properties of one gateway proxy that determine its listeners. Merge does not change the Router.
type Router struct {
	// Gateways are all Gateways that select the router (func Selects), in any order. Repeated pointers count once.
	Gateways []*model.Gateway
	// Services are all services that have the router's Pod as an endpoint, the oldest first. They translate ports of
	// servers to ports of the Pod.
	Services []*model.Service
	// Target returns the number of a service's port at the router's Pod, or 0 if the number is unknown. If Target is
	// nil, the number is the port's target_number. If target_number is 0, a port with a target name has an unknown
	// number, and any other port has its own number.
	Target func(*model.Service, *model.ServicePort) uint32
	// Wildcards are the addresses that mean the same as an empty bind. They depend on the Pod's IP families. An empty
	// list means 0.0.0.0 and ::.
	Wildcards []string
	// Unprivileged reports that the Pod may not bind ports below 1024 (node metadata UNPRIVILEGED_POD).
	Unprivileged bool
	// Reserved are further ports of the Pod that the agent and Envoy use (PROXY_CONFIG's statusPort, proxyAdminPort).
	// The default ports of the agent and of Envoy are always reserved.
	Reserved []uint32
	// QUIC enables HTTP/3 for HTTPS servers of mode SIMPLE if a Service has a UDP port with the server's number
	// (PILOT_ENABLE_QUIC_LISTENERS).
	QUIC bool
}

// Listener is one socket of a router, with the servers that share it.
type Listener struct {
	// Bind is an IP address in its usual form, or unix://path with a clean path. An IPv4-mapped IPv6 address becomes an
	// IPv4 address, because Envoy cannot bind the mapped form. Bind is empty if the listener has all addresses of the
	// Pod, also if a server states an address of Router.Wildcards. Bind does not depend on the order of the servers.
	Bind string
	Port uint32 // port of the Pod, after translation; 0 for a Unix socket
	// Plain has the servers without TLS, in order of precedence. The list has either servers of the HTTP family, which
	// share one route configuration, or a single TCP server.
	Plain []Server
	// TLS has the servers with TLS, terminated or passed through, in order of precedence. Each has filter chains of its
	// own.
	TLS []Server
	// QUIC reports that at least one server of TLS has QUIC set, so the listener has a UDP twin for HTTP/3.
	QUIC bool
}

// Server is one server of a Gateway. Its methods read the Gateway's record, which must not be changed.
type Server struct {
	Gateway *model.Gateway
	Index   int    // index in spec.servers
	Bound   uint32 // port of the Pod; 0 for a Unix socket
	Hosts   []Host // served hosts in canonical form, each once, in the stated order
	QUIC    bool   // HTTP/3 is served, too
}

// Selects reports whether a Gateway's selector matches the labels of a router. An empty selector matches all routers.
func Selects(g *model.Gateway, labels map[string]string) bool {
	return model.Matches(g.Spec.GetSelector(), labels)
}

// Precedes compares Gateways by precedence: creation time, then name, then namespace, then origin. The result is
// negative if a precedes b, and positive if b precedes a.
func Precedes(a, b *model.Gateway) int { return a.Older(&b.Head) }

// Spec returns the server in the Gateway's record. The caller must not change it.
func (s Server) Spec() *networkingv1.Server { return s.Gateway.Spec.GetServers()[s.Index] }

// Name returns "namespace/name" of the server's Gateway, as VirtualServices name it.
func (s Server) Name() string { return s.Gateway.Key.Namespace + "/" + s.Gateway.Key.Name }

func (s Server) namespace() string { return s.Gateway.Key.Namespace }

// Protocol returns the protocol of the server's port. An unknown or empty protocol is TCP.
func (s Server) Protocol() model.Protocol {
	if p, known := model.ParseProtocol(s.Spec().GetPort().GetProtocol()); known && p != model.Protocol_PROTOCOL_AUTO {
		return p
	}
	return model.Protocol_PROTOCOL_TCP
}

// plainHTTP reports whether the protocol is of the HTTP family. Such a server does not use TLS, whatever its field tls
// states: Istio permits only httpsRedirect there.
func (s Server) plainHTTP() bool {
	switch s.Protocol() {
	case model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_HTTP2, model.Protocol_PROTOCOL_GRPC, model.Protocol_PROTOCOL_GRPC_WEB:
		return true
	default:
		return false
	}
}

// TLS reports whether connections to the server begin with TLS. It is false for plain HTTP, and if the field tls is
// missing.
func (s Server) TLS() bool { return s.Spec().GetTls() != nil && !s.plainHTTP() }

// HTTP reports whether Envoy parses HTTP requests to the server: plain HTTP of any version, and HTTPS with termination
// of TLS.
func (s Server) HTTP() bool {
	return s.plainHTTP() || s.Protocol() == model.Protocol_PROTOCOL_HTTPS && s.Ends()
}

// Passes reports whether TLS is forwarded unchanged, by SNI (modes PASSTHROUGH and AUTO_PASSTHROUGH).
func (s Server) Passes() bool {
	mode := s.Spec().GetTls().GetMode()
	return s.TLS() && (mode == networkingv1.ServerTLSSettings_PASSTHROUGH || s.Auto())
}

// Auto reports whether TLS is forwarded unchanged to the cluster that the SNI names (mode AUTO_PASSTHROUGH).
func (s Server) Auto() bool {
	return s.TLS() && s.Spec().GetTls().GetMode() == networkingv1.ServerTLSSettings_AUTO_PASSTHROUGH
}

// Ends reports whether the server terminates TLS. It is false for a server without TLS.
func (s Server) Ends() bool { return s.TLS() && !s.Passes() }

// RouteName returns istiod's name of the route configuration of an HTTPS server,
// https.PORT.PORTNAME.GATEWAY.NAMESPACE[.BIND], with the port and the bind that the Gateway states. It is empty for any
// other server. Plain HTTP servers share a route configuration (Listener.PlainRoute).
func (s Server) RouteName() string {
	if !s.HTTP() || s.plainHTTP() {
		return ""
	}
	spec := s.Spec()
	return strings.Join([]string{"https", number(spec.GetPort().GetNumber()), spec.GetPort().GetName(), s.Gateway.Key.Name,
		s.Gateway.Key.Namespace}, ".") + suffix(spec.GetBind())
}

// suffix returns the part of a route configuration's name for a bind.
func suffix(bind string) string {
	if bind == "" {
		return ""
	}
	return "." + bind
}

// Name returns "ADDRESS_PORT", the name of the listener. ADDRESS is Bind, or the parameter wildcard if Bind is empty.
func (l Listener) Name(wildcard string) string {
	if l.Bind != "" {
		wildcard = l.Bind
	}
	return wildcard + "_" + number(l.Port)
}

// PlainRoute returns istiod's name of the route configuration that the servers of Plain share, http.PORT[.BIND] with
// the port and the bind of the listener. The name does not depend on the servers: the listener contains it, and Envoy
// drains all connections of a listener if a part that the filter chains share changes. The result port is the port that
// the first of the servers states. Matches and virtual hosts of the route configuration use it. The name is empty for a
// TCP server. If Plain is empty, the name is empty and the port is 0.
func (l Listener) PlainRoute() (name string, port uint32) {
	if len(l.Plain) == 0 {
		return "", 0
	}
	if l.Plain[0].plainHTTP() {
		name = "http." + number(l.Port) + suffix(l.Bind)
	}
	return name, l.Plain[0].Spec().GetPort().GetNumber()
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
