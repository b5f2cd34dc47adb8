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
	servers []string // as resolv.conf orders them
	resting resting
	cache   *cache
	ask     func(query *dns.Msg, server string, stream bool) (*dns.Msg, error) // one server: askOne, but in tests

	mu  sync.Mutex
	own map[netip.AddrPort]int // sockets that queries are sent from now
}

func newForwarder(servers []string) *forwarder {
	f := &forwarder{servers: servers[:min(len(servers), maxServers)], cache: newCache(), own: map[netip.AddrPort]int{}}
	f.resting.until = map[asking]time.Time{}
	f.ask = f.askOne
	return f
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

// exchange asks one server after the other until one has an answer. Those that did not answer in time before come last; now and then they are
// asked as well, for which nobody waits: once one answers, the order is that of resolv.conf again. An error: none had an answer.
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

// try asks one server, and notes whether it let the query wait in vain. Other errors come at once: that server is asked first the next time, too.
func (f *forwarder) try(query *dns.Msg, server string, stream bool) (*dns.Msg, error) {
	reply, err := f.ask(query, server, stream)
	var failure net.Error
	f.resting.asked(server, stream, errors.As(err, &failure) && failure.Timeout(), time.Now())
	return reply, err
}

// askOne asks one server, from a socket and under an identifier of its own, so that an answer cannot be guessed from the query of the
// application. What comes meanwhile with another identifier is not the answer.
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
