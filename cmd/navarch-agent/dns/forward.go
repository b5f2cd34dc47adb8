package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	serverPatience = 2 * time.Second // time limit of each step at one server: connect, send, receive
	maxServers     = 4               // maximum number of servers; further servers are ignored
	maxReplySize   = 4096            // bytes of an answer over UDP, if the query has no EDNS buffer size
)

// forwarder sends queries to the DNS servers of the Pod and caches their answers.
type forwarder struct {
	servers []string // addresses with port, in the order of resolv.conf
	resting resting
	cache   *cache
	// ask sends a query to one server. It is askOne, except in tests.
	ask func(query *dns.Msg, server string, stream bool) (*dns.Msg, error)

	mu  sync.Mutex
	own map[netip.AddrPort]int // pending queries by the local address of their socket
}

// newForwarder returns a forwarder to the first maxServers elements of servers. The slice must not change.
func newForwarder(servers []string) *forwarder {
	f := &forwarder{servers: servers[:min(len(servers), maxServers)], cache: newCache(), own: map[netip.AddrPort]int{}}
	f.resting.until = map[asking]time.Time{}
	f.ask = f.askOne
	return f
}

// sent reports whether a client address is the address of one of the forwarder's own sockets. A query from such an
// address shows that redirection sends the agent's own queries back to the agent.
func (f *forwarder) sent(from net.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own[addrPort(from)] > 0
}

// addrPort converts a network address to an IP address and port. Without an IP address it returns the zero AddrPort.
func addrPort(a net.Addr) netip.AddrPort {
	at, _ := netip.ParseAddrPort(a.String()) // after an error the zero value, which own never contains
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// exchange returns the answer to a query from the cache, or else from the Pod's DNS servers. If stream is true, it
// sends the query over TCP. It tries one server after the other, until a server answers with a code other than SERVFAIL
// and REFUSED. Servers with a recorded timeout come last. To find out whether such a server answers again, exchange
// also sends it a query in the background, at most once in each period restFor. The error joins the errors of all
// servers, or states that no server is known.
func (f *forwarder) exchange(query *dns.Msg, stream bool) (*dns.Msg, error) {
	key, cacheable := keyOf(query)
	if cacheable {
		if reply := f.cache.get(key, query); reply != nil {
			return reply, nil
		}
	}
	if len(f.servers) == 0 {
		return nil, errors.New("no nameserver is known")
	}
	var errs []error
	order, due := f.resting.order(f.servers, stream, time.Now())
	for _, server := range due {
		go func(query *dns.Msg) { _, _ = f.try(query, server, stream) }(query.Copy())
	}
	for _, server := range order {
		reply, err := f.try(query, server, stream)
		if err == nil && (reply.Rcode == dns.RcodeServerFailure || reply.Rcode == dns.RcodeRefused) {
			err = fmt.Errorf("%s: %s", server, dns.RcodeToString[reply.Rcode])
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if cacheable {
			f.cache.put(key, reply)
		}
		return reply, nil
	}
	return nil, errors.Join(errs...)
}

// try sends the query to one server and records whether the server timed out. After any other outcome, later queries
// try the server in the order of resolv.conf again. The outcome may be another error, because errors other than
// timeouts cost no time.
func (f *forwarder) try(query *dns.Msg, server string, stream bool) (*dns.Msg, error) {
	reply, err := f.ask(query, server, stream)
	var failure net.Error
	f.resting.asked(server, stream, errors.As(err, &failure) && failure.Timeout(), time.Now())
	return reply, err
}

// askOne sends the query to one server and returns the answer, with the ID of query. It uses a fresh socket and a
// random ID. So an application that knows the port and ID of its own query cannot forge the answer. Over UDP, messages
// with another ID are ignored. Errors: no connection, no answer within serverPatience, an invalid answer, or an answer
// to another query.
func (f *forwarder) askOne(query *dns.Msg, server string, stream bool) (*dns.Msg, error) {
	network := "udp"
	if stream {
		network = "tcp"
	}
	conn, err := net.DialTimeout(network, server, serverPatience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	from := addrPort(conn.LocalAddr())
	f.note(from, 1)
	defer f.note(from, -1)
	asked := query.Copy()
	asked.Id = dns.Id()
	client := &dns.Client{Net: network, Timeout: serverPatience, UDPSize: maxReplySize}
	reply, _, err := client.ExchangeWithConn(asked, &dns.Conn{Conn: conn})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	if !answers(reply, query) {
		return nil, fmt.Errorf("%s: an answer to another question", server)
	}
	reply.Id = query.Id
	return reply, nil
}

// answers reports whether reply is a response that repeats the question of query. The case of names does not matter.
func answers(reply, query *dns.Msg) bool {
	if !reply.Response || len(reply.Question) != 1 {
		return false
	}
	a, b := reply.Question[0], query.Question[0]
	return strings.EqualFold(a.Name, b.Name) && a.Qtype == b.Qtype && a.Qclass == b.Qclass
}

// note changes the number of pending queries of a socket by the given amount.
func (f *forwarder) note(from netip.AddrPort, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own[from] += by; f.own[from] == 0 {
		delete(f.own, from)
	}
}
