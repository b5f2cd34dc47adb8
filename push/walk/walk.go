// Package walk follows one connection and its request (a walk) through the configuration of a proxy, and returns the
// decisions of Envoy. The decisions concern the listener, the filter chain, the policies, the virtual host, the route,
// the cluster and the endpoints.
//
// A walk is a pure function of Envoy's messages and of a Request. It does not read the objects from which the messages
// were made, nor state that only Envoy has, such as open connections. A Held that implements the interface Observed
// states which endpoints are ejected. The signatures of tokens are not verified. Result.Confidence states whether facts
// that a walk does not know could change the result. TestWalksMatchEnvoy of push/plan compares random walks with a real
// Envoy.
//
// Owns: nothing.  Reads: the resources that a Held (the configuration of one proxy) returns.  Never: changes these
// resources; reads the snapshot or a clock.
package walk

import (
	"cmp"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// Held is the configuration of one proxy. The results are read-only: a walk does not change them.
type Held interface {
	// Listeners iterates over all listeners. If several listeners have the address of a connection, a walk uses the
	// first.
	Listeners() iter.Seq[*listenerv3.Listener]
	// Route returns the route configuration with a name, or nil if the proxy does not hold it.
	Route(name string) *routev3.RouteConfiguration
	// Cluster returns the cluster with a name, or nil if the proxy does not hold it.
	Cluster(name string) *clusterv3.Cluster
	// Endpoints returns the endpoint assignment of the cluster with a name, or nil if the proxy does not hold it.
	Endpoints(cluster string) *endpointv3.ClusterLoadAssignment
}

// Request is a connection with one request. A walk does not change it.
type Request struct {
	// Scheme is the client's protocol: http (HTTP/1.1 without TLS), h2c (HTTP/2 without TLS), https (HTTP/1.1 with
	// TLS), h2 (HTTP/2 with TLS), or tls. Any other word means TCP. If Identity is set, http and h2c are carried within
	// the mesh's mTLS.
	Scheme string
	// Name is the host of the URL. It is also the SNI if the Scheme is tls, or if the client speaks TLS outside of the
	// mesh's mTLS.
	Name string
	// Address and Port are the destination of the connection. Address is an IP address, or unix:// and a path. A
	// listener at a Unix socket matches any Port.
	Address string
	Port    uint32
	// From is the IP address of the client. Peer is the IP address of a load balancer that states the client's address
	// by the PROXY protocol. Peer is empty if the client itself connects.
	From, Peer string
	// Identity is the SPIFFE ID in the certificate of a client that uses the mesh's mTLS. It is empty if the client
	// does not use the mesh's mTLS.
	Identity string
	// ServerName is the SNI of a client that uses the mesh's mTLS. It is empty if the client sends no SNI. With the
	// Scheme tls it has no effect.
	ServerName string
	// Certificate is the name in the certificate of a client outside of the mesh's mTLS. The name is the first URI,
	// else the first DNS name, else the subject. A walk assumes that a filter chain accepts the certificate, unless it
	// is a chain with the mesh's certificate. Such a chain refuses a client without an Identity. Certificate is empty
	// if the client has no certificate.
	Certificate string
	// Time is the time at which the validity of tokens and certificates is checked. With the zero Time, no validity
	// period is checked.
	Time time.Time
	// Headers have lower-case names. They include the pseudo headers :method, :authority, :scheme and :path. The
	// map must not be nil.
	Headers map[string]string
}

// SpeaksTLS reports whether the connection begins with a TLS handshake.
func (r Request) SpeaksTLS() bool {
	return r.Identity != "" || r.Scheme == "https" || r.Scheme == "h2" || r.Scheme == "tls"
}

// Direction states whether the proxy's own workload or some other client opens a connection.
type Direction uint8

const (
	// Outbound connections are opened by the proxy's own workload. They are redirected to the proxy if it has the
	// listener virtualOutbound.
	Outbound Direction = iota
	// Inbound connections are opened by other clients, to the workload or to a gateway.
	Inbound
)

// virtual returns the listener to which connections of a direction are redirected.
func (d Direction) virtual() string {
	if d == Outbound {
		return xds.VirtualOutbound
	}
	return xds.VirtualInbound
}

// Outcome is the way in which a walk ends.
type Outcome uint8

const (
	// Unserved means that no listener serves the address.
	Unserved Outcome = iota
	// Closed means that the proxy closes the connection. For example, no filter chain matches, the handshake fails,
	// or a policy refuses the connection.
	Closed
	// Waiting means that the proxy holds the request until a route configuration arrives.
	Waiting
	// Answered means that the proxy itself answers, with Result.Status, and for gRPC with Result.GRPC.
	Answered
	// Forwarded means that the request, or the bytes of the connection, go to one of Result.To. If Reach of the
	// destination is Missing or Empty, or if To is empty, the request fails with 503 (for gRPC with gRPC status 14), or
	// the connection is closed.
	Forwarded
)

// Confidence states on which facts the result of a walk depends. A greater value is a lower confidence. If facts lead
// to several values, the greatest applies.
type Confidence uint8

const (
	// Certain means that the configuration alone decides.
	Certain Confidence = iota
	// Likely means that facts which a walk does not read may change the result. Examples are ejected endpoints, the
	// choice by weights, and the signature of a token.
	Likely
	// Possible means that a walk cannot evaluate the decision. Examples are an authorization service, an extension, and
	// a match of an unknown kind.
	Possible
)

// String returns certain, likely or possible. It panics for other values.
func (c Confidence) String() string { return [...]string{"certain", "likely", "possible"}[c] }

// Step is one decision of the proxy.
type Step struct {
	// Type and Resource are the type and the name of the xDS resource that decides. If Resource is empty, Type has no
	// meaning, and the last earlier step with a Resource applies.
	Type     xds.Type
	Resource string
	// Text describes the decision. It may contain unprintable characters of the configuration or the request, also
	// newlines.
	Text string
	// Passed lists the routes of the virtual host before the selected route, in order, at most MaxPassed. If no route
	// is selected, it lists all routes of the virtual host, at most MaxPassed. MorePassed is the number of these routes
	// that Passed lacks. Passed is nil for all decisions except the selection of a route.
	Passed     []Passed
	MorePassed int
}

// Destination is a cluster to which a request goes.
type Destination struct {
	Cluster string // name
	// Weight is the weight of the cluster among weighted clusters. It is 0 for a cluster without a weight, and for a
	// mirror.
	Weight uint32
	// Reach states where requests to the cluster arrive. If Reach is Addressed, Endpoints lists the addresses of all
	// endpoints that may receive the request, sorted. An address is host:port (an IPv6 host has no brackets) or the
	// path of a Unix socket. For other values of Reach, Endpoints is nil.
	Reach     Reach
	Endpoints []string
	// Ejected lists the Endpoints to which Envoy sends nothing at present, for example because of outlier detection.
	// Observed is false if Envoy was not asked, or if Endpoints is empty.
	Ejected  []string
	Observed bool
	// TLS is the transport security towards the endpoints. byEndpoint has the transport security of each endpoint.
	TLS        Upstream
	byEndpoint map[string]Upstream
	// connection is true if bytes are forwarded, so that a failure closes the connection. grpc is true if a failure
	// is a gRPC status.
	connection, grpc bool
}

// Reach states where the requests to a cluster arrive.
type Reach uint8

const (
	// Addressed means that the requests arrive at endpoints.
	Addressed Reach = iota
	// Missing means that the proxy does not hold the cluster. For a destination in Result.To, it answers 503 (for gRPC,
	// gRPC status 14) or closes the connection.
	Missing
	// Empty means that no endpoint may receive a request. For a destination in Result.To, the proxy answers as for
	// Missing.
	Empty
	// Original means that the requests arrive at the address to which the client connected.
	Original
	// Resolved means that the proxy resolves the request's host by DNS, and sends the request to that address.
	Resolved
)

// Result is the result of a walk. The caller owns it.
type Result struct {
	Steps   []Step // in order
	Outcome Outcome
	// Status is the HTTP status with which the proxy itself answers. It is 0 unless Outcome is Answered.
	Status int
	// GRPC is the gRPC status with which the proxy itself answers. A gRPC client gets GRPC in place of Status. GRPC is
	// nil if the proxy does not answer with a gRPC status.
	GRPC *codes.Code
	// TCP means that the proxy forwards the bytes of the connection. If no endpoint can receive the bytes, the proxy
	// closes the connection.
	TCP bool
	// To contains the destinations that may receive the request. Mirrors contains the destinations that may receive a
	// copy. Both are in the order of the configuration.
	To, Mirrors []Destination
	// Sent contains the headers of the forwarded HTTP request, in the form of Request.Headers. It lacks the header
	// changes of a weighted cluster, and headers that Envoy adds itself, except x-forwarded-proto. It is nil if no HTTP
	// request is forwarded.
	Sent map[string]string
	// Policy is the AuthorizationPolicy rule that matched, as ns[NAMESPACE]-policy[NAME]-rule[INDEX]. It belongs to the
	// last RBAC filter of the walk that enforces rules. The rule denies or allows the request. Policy is empty if no
	// rule of that filter matched.
	Policy string
	// Refusal is the decision of the RBAC filter that refused the request. It is nil if no RBAC filter refused the
	// request.
	Refusal *Refusal
	// Unmatched means that no filter chain of the listener matches the connection. Outcome is then Closed.
	Unmatched bool
	// Lacks contains the names of the secrets that the proxy does not hold, so that the TLS handshake fails. It is nil
	// if the handshake does not fail for this reason.
	Lacks []string
	// MeshTLS means that the filter chain for the connection asks for the client's certificate, and expects the mesh's
	// mTLS.
	MeshTLS bool
	// Confidence is the confidence in the result. Doubts contains the reasons why the confidence is not Certain, one
	// clause each.
	Confidence Confidence
	Doubts     []string
	// Admission is the confidence in the decision to forward the request. Doubts about the destinations do not lower
	// it. It is Certain unless Outcome is Forwarded.
	Admission Confidence
	// listening lists the ports of the proxy's listeners, if no listener serves an inbound connection.
	listening []uint32
}

// walker is the state of a walk.
type walker struct {
	Held
	Request
	peer     string         // name in the client's certificate; empty without a certificate
	ended    bool           // the proxy has terminated TLS
	trusted  string         // client's address in X-Forwarded-For; empty if the connection's address counts
	metadata map[string]any // dynamic metadata, by filter
	reroute  bool           // an accepted token has claims that may change the route
	result   Result
}

// Walk follows the connection and its request through a proxy's configuration, and returns the decisions. Walk cannot
// know some decisions, such as that of an authorization service. They become steps and doubts. Walk changes neither
// held nor request.
func Walk(held Held, direction Direction, request Request) Result {
	w := &walker{Held: held, Request: request}
	w.enter(direction)
	return w.result
}

// step adds a step without a resource of its own.
func (w *walker) step(format string, args ...any) {
	w.result.Steps = append(w.result.Steps, Step{Text: fmt.Sprintf(format, args...)})
}

// decide adds a step about a resource.
func (w *walker) decide(t xds.Type, resource, format string, args ...any) {
	w.result.Steps = append(w.result.Steps, Step{Type: t, Resource: resource, Text: fmt.Sprintf(format, args...)})
}

// answer ends the walk with an HTTP status that the proxy itself answers.
func (w *walker) answer(status int) {
	w.result.Outcome, w.result.Status = Answered, status
	if IsGRPC(w.Headers) {
		code := GRPCStatus(status)
		w.result.GRPC = &code
	}
}

// doubt lowers the confidence to c, unless it is already lower. It adds the reason to Doubts, unless Doubts contains
// the reason.
func (w *walker) doubt(c Confidence, format string, args ...any) {
	w.result.Confidence = max(w.result.Confidence, c)
	if why := fmt.Sprintf(format, args...); !slices.Contains(w.result.Doubts, why) {
		w.result.Doubts = append(w.result.Doubts, why)
	}
}

// serverName returns the SNI that the client sends, or "" if the client sends no SNI.
func (w *walker) serverName() string {
	switch {
	case !w.SpeaksTLS():
		return ""
	case w.Identity != "" && w.Scheme != "tls":
		return w.ServerName
	}
	return w.Name
}

// enter selects the listener as Envoy does. A redirected connection arrives at the listener virtualOutbound or
// virtualInbound. That listener passes the connection to the listener at the original destination's address and port,
// or to a listener at that port on all addresses. virtualInbound passes it only to a listener that binds to its port.
// Without such a listener, virtualOutbound or virtualInbound itself accepts the connection.
func (w *walker) enter(direction Direction) {
	var own *listenerv3.Listener
	for l := range w.Listeners() {
		if l.GetName() == direction.virtual() {
			own = l
		}
	}
	for _, address := range []string{w.Address, "0.0.0.0", "::"} {
		for l := range w.Listeners() {
			binds := l.GetBindToPort() == nil || l.GetBindToPort().GetValue()
			if l != own && w.isAt(l, address) && (binds || own != nil && direction == Outbound) {
				w.accept(l)
				return
			}
		}
	}
	if own == nil {
		w.step("not redirected, and nothing listens at %s", net.JoinHostPort(w.Address, fmt.Sprint(w.Port)))
		if direction == Inbound {
			w.result.listening = w.listening()
		}
		return
	}
	w.accept(own)
}

// listening returns the ports at which the proxy's TCP listeners accept connections, sorted.
func (w *walker) listening() (ports []uint32) {
	for l := range w.Listeners() {
		a := l.GetAddress().GetSocketAddress()
		if binds := l.GetBindToPort() == nil || l.GetBindToPort().GetValue(); binds && a.GetPortValue() > 0 &&
			a.GetProtocol() == corev3.SocketAddress_TCP {
			ports = append(ports, a.GetPortValue())
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// isAt reports whether a TCP listener has the given address and the connection's port. For a Unix socket, the
// connection's port is ignored.
func (w *walker) isAt(l *listenerv3.Listener, address string) bool {
	all := []*corev3.Address{l.GetAddress()}
	for _, more := range l.GetAdditionalAddresses() {
		all = append(all, more.GetAddress())
	}
	for _, one := range all {
		a := one.GetSocketAddress()
		if pipe := one.GetPipe(); pipe != nil && "unix://"+pipe.GetPath() == address || a != nil && a.GetAddress() == address &&
			a.GetPortValue() == w.Port && a.GetProtocol() == corev3.SocketAddress_TCP && w.reaches(a) {
			return true
		}
	}
	return false
}

// reaches reports whether the connection's IP version is that of a listener's address. Listeners at "::" accept IPv4
// only with ipv4_compat.
func (w *walker) reaches(a *corev3.SocketAddress) bool {
	to, err := netip.ParseAddr(w.Address)
	if err != nil {
		return true // the client's address for the connection is unknown
	}
	switch a.GetAddress() {
	case "0.0.0.0":
		return to.Unmap().Is4()
	case "::":
		return !to.Unmap().Is4() || a.GetIpv4Compat()
	}
	return true
}

// or returns a name, or "-" for an empty name.
func or(name string) string { return cmp.Or(name, "-") }
