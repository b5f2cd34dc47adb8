// Package walk follows one connection and its request through the configuration that a proxy holds, and says what Envoy
// does with it: the listener, the filter chain, the policies, the virtual host, the route, the cluster and endpoints.
//
// The walk is a pure function of Envoy's messages and of a Request. It knows nothing of the objects from which the
// messages were made, and nothing of state that only Envoy has (ejected endpoints, open connections). Tokens are
// decoded and not verified. Result.Confidence tells how much of an answer such knowledge could change. The scenes of
// cmd/internal/scene print walks; TestWalksMatchEnvoy of push/plan compares random walks with a real Envoy.
//
// Owns: nothing.  Reads: the resources that a Held returns.  Never: changes them; the snapshot; a clock.
package walk

import (
	"cmp"
	"fmt"
	"iter"
	"net"
	"time"

	"google.golang.org/grpc/codes"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// Held is the configuration of one proxy. Each lookup returns nil if the proxy does not hold the name. A walk does not
// change what it is given.
type Held interface {
	Listeners() iter.Seq[*listenerv3.Listener]
	Route(name string) *routev3.RouteConfiguration
	Cluster(name string) *clusterv3.Cluster
	Endpoints(cluster string) *endpointv3.ClusterLoadAssignment
}

// Request is a connection with one request.
type Request struct {
	// Scheme is the client's protocol: http (HTTP/1.1), h2c (HTTP/2 without TLS), https (HTTP/1.1), h2 (HTTP/2 with TLS),
	// tls, or any other word for TCP. With an Identity, http and h2c are within the mesh's mTLS.
	Scheme string
	// Name is the host of the URL, which a client with TLS states as SNI.
	Name string
	// Address and Port are those that the client connects to: an IP address, or unix:// with a path.
	Address string
	Port    uint32
	// From is the IP address of the client. Peer is the address of the load balancer that states From by the PROXY
	// protocol; empty: the client connects itself.
	From, Peer string
	// Identity is the SPIFFE ID in the certificate of a client that uses the mesh's mTLS; empty: it has no certificate.
	Identity string
	// ServerName is the SNI of a client that uses the mesh's mTLS; empty: such a client states none.
	ServerName string
	// Certificate is the name in the certificate of a client outside of the mesh's mTLS: its first URI, else its first DNS
	// name, else its subject. A server that asks for certificates accepts it. Empty: the client shows no certificate.
	Certificate string
	// Time is the time at which tokens are valid or expired. With the zero Time no token is expired.
	Time time.Time
	// Headers have lower-case names, with the pseudo headers :method, :authority, :scheme and :path.
	Headers map[string]string
}

// Direction tells connections of the proxy's own workload from those of others.
type Direction uint8

const (
	// Outbound connections are those of the workload itself, which are redirected to the proxy.
	Outbound Direction = iota
	// Inbound connections are those that others open to the workload, or to a gateway.
	Inbound
)

// virtual returns the listener to which connections of a direction are redirected.
func (d Direction) virtual() string {
	if d == Outbound {
		return xds.VirtualOutbound
	}
	return xds.VirtualInbound
}

// Outcome is the end of a walk.
type Outcome uint8

const (
	// Unserved: nothing listens at the address.
	Unserved Outcome = iota
	// Closed: the proxy ends the connection, for want of a filter chain, a certificate or a right.
	Closed
	// Waiting: a route configuration is not there yet; the proxy holds the request.
	Waiting
	// Answered: the proxy answers by itself, with Result.Status.
	Answered
	// Forwarded: the request or the bytes of the connection go to one of Result.To.
	Forwarded
)

// Confidence tells what a walk's answer depends on. The greatest that applies counts.
type Confidence uint8

const (
	// Certain: the configuration alone decides.
	Certain Confidence = iota
	// Likely: state of Envoy may change the answer, such as ejected endpoints, or a token that was not verified.
	Likely
	// Possible: something outside of the configuration decides, such as an authorization service or an extension.
	Possible
)

// String returns certain, likely or possible.
func (c Confidence) String() string { return [...]string{"certain", "likely", "possible"}[c] }

// Step is one thing that the proxy decides.
type Step struct {
	// Type and Resource name the xDS resource that decides; Resource is empty where it is the one of the step before.
	Type     xds.Type
	Resource string
	// Text is a line without its end.
	Text string
}

// Destination is a cluster to which a request goes.
type Destination struct {
	Cluster string
	// Weight is the share of a weighted route; 0 for the only cluster.
	Weight uint32
	// Reach tells where they arrive. With Addressed, Endpoints lists all that may receive the request, sorted.
	Reach     Reach
	Endpoints []string
	// TLS is the transport security towards the endpoints; byEndpoint has it for each of them.
	TLS        Upstream
	byEndpoint map[string]Upstream
	// connection is of bytes: a failure ends the connection, and has no status. grpc: a failure has a status of gRPC.
	connection, grpc bool
}

// Reach tells where the requests of a cluster arrive.
type Reach uint8

const (
	// Addressed: endpoints.
	Addressed Reach = iota
	// Missing: the proxy holds no such cluster, so it answers 503.
	Missing
	// Empty: no endpoint may receive a request, so the proxy answers 503.
	Empty
	// Original: the address that the client has connected to.
	Original
	// Resolved: the address of the request's host, by DNS.
	Resolved
)

// Result is the answer of a walk.
type Result struct {
	Steps   []Step
	Outcome Outcome
	// Status is the HTTP status that the proxy answers itself, or 0.
	Status int
	// GRPC is the status of gRPC with which the proxy answers a gRPC request itself, in the place of Status; nil: the
	// request is not one of gRPC, or is not answered so.
	GRPC *codes.Code
	// TCP states that the connection is forwarded as bytes: where nothing can receive them, it is closed.
	TCP bool
	// To has the destinations that may receive the request, Mirrors those of copies, in the order of the configuration.
	To, Mirrors []Destination
	// Sent has the headers with which an HTTP request is forwarded, in the form of Request.Headers.
	Sent map[string]string
	// Policy is the AuthorizationPolicy rule that decided, as ns[NAMESPACE]-policy[NAME]-rule[INDEX]. It is the rule that
	// denies or allows; empty where no rule matched.
	Policy string
	// Confidence is the confidence in the answer, and Doubts says what is not known, one clause each.
	Confidence Confidence
	Doubts     []string
	// Admission is the confidence in what the policies decide, without what becomes of an admitted request.
	Admission Confidence
}

// walker is a walk under way.
type walker struct {
	Held
	Request
	peer     string         // the identity that a handshake has verified
	ended    bool           // the proxy has ended TLS
	trusted  string         // address of the client by X-Forwarded-For, where the proxy trusts it; empty: of the connection
	metadata map[string]any // what filters have stored, by filter
	reroute  bool           // a token was verified, whose claims may decide on the route
	result   Result
}

// Walk follows a request from the moment of its connection. It always returns a Result; what it does not know of a
// configuration is a step that says so.
func Walk(held Held, direction Direction, request Request) Result {
	w := &walker{Held: held, Request: request}
	w.enter(direction)
	return w.result
}

// step adds a step of the resource of the step before.
func (w *walker) step(format string, args ...any) {
	w.result.Steps = append(w.result.Steps, Step{Text: fmt.Sprintf(format, args...)})
}

// decide adds a step of a resource.
func (w *walker) decide(t xds.Type, resource, format string, args ...any) {
	w.result.Steps = append(w.result.Steps, Step{Type: t, Resource: resource, Text: fmt.Sprintf(format, args...)})
}

// answer ends the walk with a status of the proxy's own.
func (w *walker) answer(status int) {
	w.result.Outcome, w.result.Status = Answered, status
	if IsGRPC(w.Headers) {
		code := GRPCStatus(status)
		w.result.GRPC = &code
	}
}

// doubt lowers the confidence, for a reason that the result states.
func (w *walker) doubt(c Confidence, format string, args ...any) {
	w.result.Confidence = max(w.result.Confidence, c)
	w.result.Doubts = append(w.result.Doubts, fmt.Sprintf(format, args...))
}

// speaksTLS reports whether the client begins the connection with TLS.
func (w *walker) speaksTLS() bool {
	return w.Identity != "" || w.Scheme == "https" || w.Scheme == "h2" || w.Scheme == "tls"
}

// serverName returns the SNI that the client states, or "".
func (w *walker) serverName() string {
	switch {
	case !w.speaksTLS():
		return ""
	case w.Identity != "" && w.Scheme != "tls":
		return w.ServerName
	}
	return w.Name
}

// enter finds the listener as Envoy does: the connection is redirected to a virtual listener, which hands it to the one
// at its original destination, or at its port, or keeps it.
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
		return
	}
	w.accept(own)
}

// isAt reports whether a listener of connections has an address, and the port of the connection.
func (w *walker) isAt(l *listenerv3.Listener, address string) bool {
	all := []*corev3.Address{l.GetAddress()}
	for _, more := range l.GetAdditionalAddresses() {
		all = append(all, more.GetAddress())
	}
	for _, one := range all {
		a := one.GetSocketAddress()
		if pipe := one.GetPipe(); pipe != nil && "unix://"+pipe.GetPath() == address ||
			a != nil && a.GetAddress() == address && a.GetPortValue() == w.Port && a.GetProtocol() == corev3.SocketAddress_TCP {
			return true
		}
	}
	return false
}

// or returns the name, or "-" for none.
func or(name string) string { return cmp.Or(name, "-") }
