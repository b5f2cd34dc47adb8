package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// The bounds of the work that the clients of a Pod can cause at once.
const (
	maxQueries     = 256             // concurrent queries; further queries get no response, and clients retry
	maxConnections = 64              // TCP connections; further ones wait until one is closed
	idle           = 5 * time.Second // time after which an idle connection is closed
	maxQuerySize   = 1232            // bytes of a query over UDP
	// TTL of mesh names in seconds, as in Istio's agents. It is short, so that clients notice a changed address soon.
	ttl = 30
)

// Config contains the settings of a Server. The server keeps the slices, which must not change.
type Config struct {
	Listen []string // at least one host:port; each for UDP and TCP
	// Servers are the host:port of the Pod's DNS servers, in the order in which they are tried. Only the first four are
	// used. Without servers, queries for names outside of the mesh fail (SERVFAIL).
	Servers []string
	Place   Place        // for the resolution of incomplete names
	Log     *obs.Sampled // for warnings that clients can cause, at a limited rate; must not be nil
}

// Server answers DNS queries of one Pod. Use it in this order: New, Listen, Run. Take may be called at any time.
type Server struct {
	cfg     Config
	table   atomic.Pointer[Table]
	forward *forwarder
	slots   chan struct{}
	servers []*dns.Server
}

// New returns a server without a name table. It opens no sockets.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, forward: newForwarder(cfg.Servers), slots: make(chan struct{}, maxQueries)}
}

// Listen binds all sockets and must be called once, before Run. An address that this machine does not have, for example
// ::1 without IPv6, is skipped. Errors: an address cannot be bound for another reason, for example because the port is
// in use, or no address is left. After an error no socket is open.
func (s *Server) Listen() error {
	for _, address := range s.cfg.Listen {
		if err := s.bind(address); errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			continue
		} else if err != nil {
			s.close()
			return fmt.Errorf("DNS address: %w", err)
		}
	}
	if len(s.servers) == 0 {
		return fmt.Errorf("DNS: none of the addresses %q is this machine's", s.cfg.Listen)
	}
	return nil
}

// bind opens the sockets of one address. After an error neither socket is open.
func (s *Server) bind(address string) error {
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	// If the kernel chooses the UDP port, the TCP port has the same number.
	connections, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		return errors.Join(err, packets.Close())
	}
	s.servers = append(s.servers,
		&dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(s.answer), UDPSize: maxQuerySize},
		&dns.Server{Listener: netutil.LimitListener(connections, maxConnections),
			Handler:     dns.HandlerFunc(s.answer),
			ReadTimeout: idle, WriteTimeout: idle,
			IdleTimeout: func() time.Duration { return idle }})
	return nil
}

// close closes sockets that Run has not served.
func (s *Server) close() {
	for _, server := range s.servers {
		if server.PacketConn != nil {
			_ = server.PacketConn.Close()
		} else {
			_ = server.Listener.Close()
		}
	}
}

// Addresses returns the host:port of the server's UDP sockets, in the order of Config.Listen without the skipped
// addresses. The TCP sockets have the same addresses. Before Listen it returns nil.
func (s *Server) Addresses() (out []string) {
	for _, server := range s.servers {
		if server.PacketConn != nil {
			out = append(out, server.PacketConn.LocalAddr().String())
		}
	}
	return out
}

// Take replaces the name table by one with the given names. Their address slices must not change afterwards. An empty
// argument makes a table without entries. Of two elements with the same host the later one applies. Take is safe for
// concurrent use, also with Run.
func (s *Server) Take(names []agentapi.Name) { s.table.Store(newTable(names, s.cfg.Place)) }

// Ready reports whether Take was called. Until then every query gets SERVFAIL, because mesh names must not be resolved
// by the Pod's DNS servers.
func (s *Server) Ready() bool { return s.table.Load() != nil }

// Run answers queries until ctx ends, then closes all sockets and returns nil. If a socket fails earlier, Run closes
// all sockets and returns the error of that socket. Run may be called once.
func (s *Server) Run(ctx context.Context) error {
	var tasks []loop.Task
	for _, server := range s.servers {
		tasks = append(tasks, loop.Task{Name: "dns", Run: func(ctx context.Context) error {
			end := context.AfterFunc(ctx, func() {
				if server.PacketConn != nil {
					_ = server.PacketConn.Close()
				} else {
					_ = server.Listener.Close()
				}
			})
			defer end()
			if err := server.ActivateAndServe(); ctx.Err() == nil {
				return fmt.Errorf("DNS: %w", err)
			}
			return nil
		}})
	}
	return loop.Run(ctx, tasks...)
}

// answer writes the response to one query. The query has exactly one question, as dns.DefaultMsgAcceptFunc enforces.
func (s *Server) answer(w dns.ResponseWriter, query *dns.Msg) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		s.cfg.Log.Warn("too many DNS queries of the Pod wait: further queries are not answered", "full", "waiting", maxQueries)
		return
	}
	reply := s.reply(w.RemoteAddr(), query)
	_, stream := w.RemoteAddr().(*net.TCPAddr)
	size := dns.MaxMsgSize
	if !stream {
		size = dns.MinMsgSize
		if opt := query.IsEdns0(); opt != nil {
			size = max(size, int(opt.UDPSize()))
		}
	}
	reply.Truncate(size)
	_ = w.WriteMsg(reply) // fails if the client is gone
}

// reply returns the response to a query. Mesh names are resolved by the name table, all other names by the Pod's
// servers. The response is SERVFAIL without a name table, if no server answers, and for a query that the agent itself
// sent.
func (s *Server) reply(from net.Addr, query *dns.Msg) *dns.Msg {
	table := s.table.Load()
	if table == nil {
		return failed(query)
	}
	if q := query.Question[0]; q.Qclass == dns.ClassINET && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeAAAA) {
		name := strings.TrimSuffix(strings.ToLower(q.Name), ".")
		if alias, addresses, found := table.Lookup(name, q.Qtype == dns.TypeAAAA); found {
			return inMesh(query, alias, addresses)
		}
	}
	if s.forward.sent(from) {
		s.cfg.Log.Warn("DNS queries of the agent are redirected back to the agent: exempt the agent's user from redirection", "loop")
		return failed(query)
	}
	_, stream := from.(*net.TCPAddr)
	reply, err := s.forward.exchange(query, stream)
	if err != nil {
		s.cfg.Log.Warn("no DNS server of the Pod answers", "forward", obs.KeyError, err)
		return failed(query)
	}
	return reply
}

// inMesh returns the response for a mesh name. Without addresses of the queried family the response is empty, with code
// NOERROR, because after NXDOMAIN clients would not query the other family. The argument alias is a result of
// Table.Lookup.
func inMesh(query *dns.Msg, alias string, addresses []netip.Addr) *dns.Msg {
	q := query.Question[0]
	reply := new(dns.Msg)
	reply.SetReply(query)
	reply.Authoritative, reply.RecursionAvailable = true, true
	if opt := query.IsEdns0(); opt != nil {
		reply.SetEdns0(maxQuerySize, opt.Do())
	}
	name := q.Name
	header := func(t uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
	}
	if alias != "" {
		target := q.Name[:len(alias)] + "." // with the client's spelling
		reply.Answer = append(reply.Answer, &dns.CNAME{Hdr: header(dns.TypeCNAME), Target: target})
		name = target
	}
	for _, a := range addresses {
		if a.Is6() {
			reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: a.AsSlice()})
		} else {
			reply.Answer = append(reply.Answer, &dns.A{Hdr: header(dns.TypeA), A: a.AsSlice()})
		}
	}
	return reply
}

// failed returns the response SERVFAIL, which means that the name cannot be resolved now.
func failed(query *dns.Msg) *dns.Msg {
	reply := new(dns.Msg)
	reply.SetRcode(query, dns.RcodeServerFailure)
	return reply
}
