package walk

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"navarch.io/navarch/push/xds"
)

// Peer is one end of a call: the configuration of its proxy (Held), its IP addresses, and its identity.
type Peer struct {
	Held
	Addresses []string // IP addresses without ports
	Identity  string   // SPIFFE ID; empty if unknown
}

// Call is the result of following a request from the proxy of a client to that of a server.
type Call struct {
	Client Result // the walk at the client's proxy
	// Cluster is the client's cluster, and Endpoint the server's endpoint in this cluster, as "host:port". Both strings
	// are empty if the request does not leave the client's proxy, or if no endpoint has an address of the server.
	Cluster, Endpoint string
	// Upstream is the transport security of the client towards Endpoint. It is zero if Endpoint is empty.
	Upstream Upstream
	// TLS states the facts of the transport security between the proxies, one line each. It is nil if Endpoint is
	// empty.
	TLS []string
	// Broken is the reason why the request does not get from one proxy to the other. It is empty if the request arrives
	// at the server's proxy. It is also empty if the client's proxy does not forward the request, or has no endpoint
	// for the request.
	Broken string
	// Server is the walk at the server's proxy. It is nil if the request does not reach that proxy.
	Server *Result
}

// Between follows a request from a client's proxy to a server's. It uses the first destination of the client's route
// that has an endpoint at an address of the server. The walk at the server begins with the connection to that endpoint.
// It uses the endpoint's TLS, and the request with the changes of the client's route. Call.Server is nil if no
// destination has such an endpoint, or if the TLS handshake fails. Between does not change its arguments.
func Between(client, server Peer, r Request) Call {
	c := Call{Client: Walk(client.Held, Outbound, r)}
	lost := func(to Destination) bool { return to.Reach == Missing || to.Reach == Empty }
	if c.Client.Outcome != Forwarded || !slices.ContainsFunc(c.Client.To, func(to Destination) bool { return !lost(to) }) {
		return c
	}
	to, endpoint := meets(c.Client.To, server.Addresses)
	if endpoint == "" {
		c.Broken = "no destination of the request has an endpoint at " + strings.Join(server.Addresses, " or ")
		return c
	}
	c.Cluster, c.Endpoint = to.Cluster, endpoint
	tls := to.byEndpoint[endpoint]
	c.Upstream = tls
	if c.Broken = c.secure(client, server, tls, r.Time); c.Broken != "" {
		return c
	}
	result := Walk(server.Held, Inbound, arriving(client, r, c.Client, endpoint, tls))
	c.Server = &result
	return c
}

// Direct follows a request from a client's proxy to a port of the server's proxy. The receiver is the configuration of
// the client's proxy. The result has one Call for each endpoint in the client's outbound clusters that has an address
// of the server and that port. The Calls are sorted by cluster. Direct does not follow the client's listeners and
// routes, so Call.Client only has Sent. Sent is the map r.Headers itself. If r.From is empty, the walk at the server
// uses the first address of the client. The result is nil if no outbound cluster has such an endpoint.
func (m *Messages) Direct(client, server Peer, port uint32, r Request) (all []Call) {
	for _, name := range slices.Sorted(maps.Keys(m.clusters)) {
		if strings.HasPrefix(name, "inbound|") {
			continue
		}
		cluster := m.clusters[name]
		cla := cluster.GetLoadAssignment()
		if cluster.GetType() == clusterv3.Cluster_EDS {
			cla = m.endpoints[name]
		}
		_, byEndpoint := upstream(cluster, cla)
		for _, address := range server.Addresses {
			endpoint := fmt.Sprintf("%s:%d", address, port) // as addressOf
			tls, is := byEndpoint[endpoint]
			if !is {
				continue
			}
			c := Call{Cluster: name, Endpoint: endpoint, Upstream: tls, Client: Result{Sent: r.Headers}}
			if c.Broken = c.secure(client, server, tls, r.Time); c.Broken == "" {
				arrived := arriving(client, r, c.Client, endpoint, tls)
				arrived.From = cmp.Or(r.From, arrived.From)
				result := Walk(server.Held, Inbound, arrived)
				c.Server = &result
			}
			all = append(all, c)
		}
	}
	return all
}

// meets returns the first destination with an endpoint at one of the addresses, and that endpoint. Without such an
// endpoint it returns the zero Destination and "".
func meets(all []Destination, addresses []string) (Destination, string) {
	for _, to := range all {
		for _, e := range to.Endpoints {
			if host, _ := hostPort(e); slices.Contains(addresses, host) {
				return to, e
			}
		}
	}
	return Destination{}, ""
}

// hostPort divides host:port. An IPv6 address may have brackets, which are removed. For any other text, hostPort
// returns the text and 0.
func hostPort(endpoint string) (string, uint32) {
	at := strings.LastIndexByte(endpoint, ':')
	if at < 0 {
		return endpoint, 0
	}
	port, err := strconv.ParseUint(endpoint[at+1:], 10, 16)
	if err != nil {
		return endpoint, 0
	}
	return strings.Trim(endpoint[:at], "[]"), uint32(port)
}

// secure adds the lines about the transport security between the proxies. It returns the reason why the handshake of
// the proxies fails, or "" if the handshake succeeds.
func (c *Call) secure(client, server Peer, tls Upstream, at time.Time) string {
	say := func(format string, args ...any) { c.TLS = append(c.TLS, fmt.Sprintf(format, args...)) }
	say("%s to %s", map[string]string{"plain": "plain text", "tls": "TLS", "mtls": "mTLS of the mesh"}[tls.Mode], c.Endpoint)
	if tls.Mode == "plain" {
		return ""
	}
	if tls.SNI != "" {
		say("SNI %s", tls.SNI)
	}
	if tls.Mode == "mtls" {
		say("the client shows %s", or(client.Identity))
	}
	if tls.Root == xds.SDSRoot {
		say("both accept the mesh's authorities, which each gets from its agent")
	} else if tls.Root != "" {
		say("the client accepts the authorities of %s", tls.Root)
	}
	if tls.Mode == "mtls" {
		if why := c.handshakeFails(client, server, tls, at); why != "" {
			return why
		}
	}
	if len(tls.Names) == 0 {
		return ""
	}
	say("the client expects %s", strings.Join(tls.Names, " or "))
	if server.Identity == "" || certificateOf(server.Held, xds.SDSDefault) != nil {
		return ""
	}
	say("the server shows %s", server.Identity)
	if !slices.Contains(tls.Names, server.Identity) {
		return fmt.Sprintf("the client's proxy expects %s, and the server is %s: 503 (UF)",
			strings.Join(tls.Names, " or "), server.Identity)
	}
	return ""
}

// arriving returns the request as it arrives at the server's proxy.
func arriving(client Peer, r Request, from Result, endpoint string, tls Upstream) Request {
	in := Request{Scheme: r.Scheme, Name: r.Name, Headers: r.Headers, Time: r.Time}
	in.Address, in.Port = hostPort(endpoint)
	if len(client.Addresses) > 0 {
		in.From = client.Addresses[0]
	}
	if !from.TCP {
		in.Headers = from.Sent
		if in.Scheme = "http"; r.Scheme == "h2c" || r.Scheme == "h2" {
			in.Scheme = "h2c" // within the transport security between the proxies
		}
	}
	switch tls.Mode {
	case "mtls":
		in.Identity, in.ServerName = client.Identity, tls.SNI
		if from.TCP {
			in.Scheme = "tcp"
		}
	case "tls":
		in.Scheme, in.Name = "https", tls.SNI
	}
	return in
}

// Summary returns one sentence, without a full stop, about the outcome of the request.
func (c Call) Summary() string {
	switch {
	case c.Broken != "":
		return c.Broken
	case c.Server == nil:
		return c.Client.Summary()
	case c.Server.Outcome == Closed || c.Server.Outcome == Unserved:
		return strings.Replace(c.Server.Summary(), "the proxy", "the server's proxy", 1) + ", so the client's proxy answers 503 (UF or UC)"
	case c.Server.Outcome == Forwarded && len(c.Server.To) == 1 && c.Server.To[0].Reach != Missing && isOwn(c.Server.To[0].Cluster):
		return fmt.Sprintf("the request reaches the server's application, by %s", c.Server.To[0].Cluster)
	}
	return strings.Replace(c.Server.Summary(), "the proxy", "the server's proxy", 1)
}

// isOwn reports whether a cluster leads to the proxy's own application. A gateway has no such cluster.
func isOwn(cluster string) bool {
	return strings.HasPrefix(cluster, "inbound|") || cluster == xds.InboundPassthrough
}

// Confidence returns the lower confidence of the two walks, and the doubts of both walks. The doubts are sorted and
// without repetitions. They are nil if there are no doubts. The caller owns the slice.
func (c Call) Confidence() (Confidence, []string) {
	level, doubts := c.Client.Confidence, slices.Clone(c.Client.Doubts)
	if c.Server != nil {
		level, doubts = max(level, c.Server.Confidence), append(doubts, c.Server.Doubts...)
	}
	slices.Sort(doubts)
	return level, slices.Compact(doubts)
}
