// Package gateways merges the servers of the Gateways that select one router into the listeners that the router binds.
//
// A server of a Gateway states a port, a protocol, hosts, and how TLS ends. Several servers, also of several
// namespaces, may state one port. Merge decides which of them a router serves: it walks the Gateways by age, and keeps
// a server unless Envoy could not serve it beside those kept so far, or would refuse the listener. A server that is
// left out is a Conflict that names the winner (istio: pilot/pkg/model/gateway.go, mergeGateways).
//
// Each decision reads older servers alone. So a younger Gateway changes nothing for an older one: neither whether a
// server is served, nor its hosts, nor the names of its listener and route configuration. Istiod has the same order, so
// there is no exception to this rule. Gateways of one second are older or younger by their names.
//
// Where Envoy accepts istiod's listeners, the outcome is istiod's, with these exceptions:
//   - A server that is skipped does not occupy its hosts.
//   - A host is occupied on each bind that has a server for it, and equal addresses are one bind.
//   - Names beside a host "*" are occupied, although the chain of their server matches everything.
//   - A server of another namespace cannot be bound to one address of a port that an older server has at all addresses.
//   - The ports of the agent and of Envoy itself, and the folders of their Unix sockets, are not for servers.
//
// Where Envoy would refuse istiod's listener, the older server or host wins.
//
// Chains that a TLS server without termination has are of the SNI of VirtualServices. Merge compares hosts; the caller
// has to compare these SNI with each other and with Names of the servers that end TLS.
//
// Names of route configurations are istiod's, because EnvoyFilters match them and tools show them.
//
// Owns: nothing.  Reads: the records that it is given, and store/scrape for the ports of the agent.  Never: a
// VirtualService, a proxy, a clock; it draws nothing.
package gateways

import (
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Router has the properties of a router by which its Gateways become listeners.
type Router struct {
	// Gateways select the router, in any order.
	Gateways []*model.Gateway
	// Services have the router's Pod among their endpoints: the oldest first. They translate ports of servers to ports
	// of the Pod.
	Services []*model.Service
	// Target returns the number that a port of a service has at the router's Pod; 0: none is known. Nil: the number that
	// the port itself states (target_number, else its own).
	Target func(*model.Service, *model.ServicePort) uint32
	// Wildcards are the addresses that an empty bind stands for, by the Pod's IP families. Empty: 0.0.0.0 and ::.
	Wildcards []string
	// Unprivileged: the Pod may not bind ports below 1024 (node metadata UNPRIVILEGED_POD).
	Unprivileged bool
	// Reserved are further ports of the Pod that the agent and Envoy use (PROXY_CONFIG's statusPort, proxyAdminPort).
	// Their defaults are always reserved.
	Reserved []uint32
	// QUIC: HTTP/3 is served for HTTPS of mode SIMPLE where a Service has a UDP port of the server's number
	// (PILOT_ENABLE_QUIC_LISTENERS).
	QUIC bool
}

// Listener is one socket of a router, with the servers that share it.
type Listener struct {
	Bind string // IP address, unix://path, or empty for all addresses of the Pod
	Port uint32 // at the Pod, after translation; 0 for a Unix socket
	// Plain are the servers without TLS, in order of precedence: several of the HTTP family share one route
	// configuration; a TCP server is alone.
	Plain []Server
	// TLS are the servers with TLS, ended or passed through, in order of precedence. Each of them has filter chains of
	// its own.
	TLS []Server
	// QUIC: HTTP/3 is served beside TLS, for the servers with Server.QUIC.
	QUIC bool
}

// Server is one server of a Gateway that a router serves.
type Server struct {
	Gateway *model.Gateway
	Index   int    // in spec.servers
	Bound   uint32 // the port at the Pod
	Hosts   []Host // canonical, each once, in the order in which they are stated, without lost ones
	QUIC    bool   // HTTP/3 is served for it, which has mode SIMPLE
}

// Selects reports whether a Gateway is for the routers with these labels. An empty selector is for all routers.
func Selects(g *model.Gateway, labels map[string]string) bool {
	return model.Matches(g.Spec.GetSelector(), labels)
}

// Precedes compares Gateways by precedence: creation time, then name, then namespace. It is negative if a goes first.
func Precedes(a, b *model.Gateway) int { return a.Older(&b.Head) }

// Spec returns the server as its Gateway states it.
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

// plainHTTP reports whether the protocol is of the HTTP family. Such a server has no TLS, whatever its tls states: the
// only field of tls that Istio admits there is httpsRedirect.
func (s Server) plainHTTP() bool {
	switch s.Protocol() {
	case model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_HTTP2, model.Protocol_PROTOCOL_GRPC, model.Protocol_PROTOCOL_GRPC_WEB:
		return true
	default:
		return false
	}
}

// TLS reports whether connections to the server begin with TLS.
func (s Server) TLS() bool { return s.Spec().GetTls() != nil && !s.plainHTTP() }

// HTTP reports whether Envoy parses the server's requests: plain HTTP of any version, and HTTPS that ends here.
func (s Server) HTTP() bool {
	return s.plainHTTP() || s.Protocol() == model.Protocol_PROTOCOL_HTTPS && s.Ends()
}

// Passes reports whether TLS is handed on as it is, by SNI (modes PASSTHROUGH and AUTO_PASSTHROUGH).
func (s Server) Passes() bool {
	mode := s.Spec().GetTls().GetMode()
	return s.TLS() && (mode == networkingv1.ServerTLSSettings_PASSTHROUGH || s.Auto())
}

// Auto reports whether TLS is handed on to the services whose clusters the SNI names (mode AUTO_PASSTHROUGH).
func (s Server) Auto() bool {
	return s.TLS() && s.Spec().GetTls().GetMode() == networkingv1.ServerTLSSettings_AUTO_PASSTHROUGH
}

// Ends reports whether the server ends TLS.
func (s Server) Ends() bool { return s.TLS() && !s.Passes() }

// RouteName returns the name of the server's route configuration; empty for a server without HTTP. The bound port is
// part of the name of plain HTTP, and the port as it is stated part of the name of HTTPS.
func (s Server) RouteName() string {
	spec, suffix := s.Spec(), ""
	if spec.GetBind() != "" {
		suffix = "." + spec.GetBind()
	}
	switch {
	case s.plainHTTP():
		return "http." + number(s.Bound) + suffix
	case s.HTTP():
		return strings.Join([]string{"https", number(spec.GetPort().GetNumber()), spec.GetPort().GetName(),
			s.Gateway.Key.Name, s.Gateway.Key.Namespace}, ".") + suffix
	}
	return ""
}

// Name returns the name of the listener. wildcard is the address that an empty bind stands for.
func (l Listener) Name(wildcard string) string {
	if l.Bind != "" {
		wildcard = l.Bind
	}
	return wildcard + "_" + number(l.Port)
}

// PlainRoute returns the name of the route configuration that the servers of Plain share, and the port that matches and
// virtual hosts are for: the one that the first server states. The name is empty without plain HTTP.
func (l Listener) PlainRoute() (name string, port uint32) {
	if len(l.Plain) == 0 {
		return "", 0
	}
	return l.Plain[0].RouteName(), l.Plain[0].Spec().GetPort().GetNumber()
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
