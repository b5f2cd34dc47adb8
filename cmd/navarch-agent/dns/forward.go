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
	serverPatience = 2 * time.Second // with one server
	maxServers     = 4               // that are asked for one query
	maxReplySize   = 4096            // bytes of an answer over UDP, where the query does not say
)

// forwarder asks the DNS servers of the Pod.
type forwarder struct {
	servers []string
	cache   *cache

	mu  sync.Mutex
	own map[netip.AddrPort]int // sockets that queries are sent from now
}

func newForwarder(servers []string) *forwarder {
	return &forwarder{servers: servers[:min(len(servers), maxServers)], cache: newCache(), own: map[netip.AddrPort]int{}}
}

// sent says whether a query came from a socket of the forwarder itself.
func (f *forwarder) sent(from net.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own[addrPort(from)] > 0
}

func addrPort(a net.Addr) netip.AddrPort {
	at, _ := netip.ParseAddrPort(a.String()) // the zero one is nobody's
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// exchange asks one server after the other until one has an answer. An error: none had.
func (f *forwarder) exchange(query *dns.Msg, stream bool) (*dns.Msg, error) {
	key, cacheable := keyOf(query)
	if cacheable {
		if reply := f.cache.get(key, query); reply != nil {
			return reply, nil
		}
	}
	if len(f.servers) == 0 {
		return nil, errors.New("none is known")
	}
	var errs []error
	for _, server := range f.servers {
		reply, err := f.ask(query, server, stream)
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

// ask asks one server, from a socket and under an identifier of its own, so that an answer cannot be guessed from the query of the
// application. What comes meanwhile with another identifier is not the answer.
func (f *forwarder) ask(query *dns.Msg, server string, stream bool) (*dns.Msg, error) {
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

// answers says whether a message is the answer to the question of another, whatever the case of its name.
func answers(reply, query *dns.Msg) bool {
	if len(reply.Question) != 1 {
		return false
	}
	a, b := reply.Question[0], query.Question[0]
	return strings.EqualFold(a.Name, b.Name) && a.Qtype == b.Qtype && a.Qclass == b.Qclass
}

func (f *forwarder) note(from netip.AddrPort, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own[from] += by; f.own[from] == 0 {
		delete(f.own, from)
	}
}
