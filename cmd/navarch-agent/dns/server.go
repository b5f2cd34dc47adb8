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
	maxQueries     = 256             // queries that wait for an answer; further ones are dropped, and clients retry
	maxConnections = 64              // TCP connections; further ones wait
	idle           = 5 * time.Second // time after which an idle connection is closed
	maxQuerySize   = 1232            // bytes of a query over UDP
	// seconds, of names of the mesh, as with stock agents: clients query a changed address again soon
	ttl = 30
)

// Config contains the settings of a Server.
type Config struct {
	Listen  []string // host:port; each for UDP and TCP
	Servers []string // host:port of the Pod's DNS servers, in the order in which they are tried
	Place   Place
	// Log limits the rate of warnings that clients can cause.
	Log *obs.Sampled
}

// Server answers DNS queries of one Pod. Make it with New.
type Server struct {
	cfg     Config
	table   atomic.Pointer[Table]
	forward *forwarder
	slots   chan struct{}
	servers []*dns.Server
}

// New returns a server without a name table; it opens no sockets.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, forward: newForwarder(cfg.Servers), slots: make(chan struct{}, maxQueries)}
}

// Listen binds all sockets; it precedes Run. A loopback address of a family that this machine does not have is skipped
// if another address can be bound. The error names the address that cannot be bound.
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

func (s *Server) bind(address string) error {
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	// Where the kernel chooses the UDP port, TCP uses the same number.
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

// Addresses returns the addresses that the server listens on over UDP, as host:port.
func (s *Server) Addresses() (out []string) {
	for _, server := range s.servers {
		if server.PacketConn != nil {
			out = append(out, server.PacketConn.LocalAddr().String())
		}
	}
	return out
}

// Take replaces the name table. Any goroutine may call it.
func (s *Server) Take(names []agentapi.Name) { s.table.Store(newTable(names, s.cfg.Place)) }

// Ready reports whether the name table has arrived. Until then every query fails: a name of the mesh must not be
// resolved by the Pod's DNS servers.
func (s *Server) Ready() bool { return s.table.Load() != nil }

// Run serves until ctx ends. The error is that of the first socket that fails.
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

// answer writes the response to one query. Its message has exactly one question (dns.DefaultMsgAcceptFunc).
func (s *Server) answer(w dns.ResponseWriter, query *dns.Msg) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		s.cfg.Log.Warn("DNS queries of the Pod are not answered: too many wait", "full", "waiting", maxQueries)
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

// reply returns the response to a query: from the name table, else from the Pod's servers. It is SERVFAIL without a
// name table, without an answer, and for a query of the agent itself.
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
		s.cfg.Log.Warn("DNS that the agent forwards comes back to it: redirection has to leave out the user that the agent runs as", "loop")
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

// inMesh returns the response for a name of the mesh. Without addresses of the queried family it is empty and not
// NXDOMAIN, after which clients would not query the other family.
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

// failed returns the response SERVFAIL: the name cannot be resolved now.
func failed(query *dns.Msg) *dns.Msg {
	reply := new(dns.Msg)
	reply.SetRcode(query, dns.RcodeServerFailure)
	return reply
}
