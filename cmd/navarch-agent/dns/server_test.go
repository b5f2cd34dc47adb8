package dns

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/obs"
)

// upstream is a DNS server of the test's own, over UDP and TCP.
type upstream struct {
	address string
	asked   atomic.Int64
}

func newUpstream(t *testing.T, answer func(q dns.Question, reply *dns.Msg)) *upstream {
	t.Helper()
	u := &upstream{}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		u.asked.Add(1)
		reply := new(dns.Msg)
		reply.SetReply(query)
		answer(query.Question[0], reply)
		if _, packet := w.RemoteAddr().(*net.UDPAddr); packet {
			size := dns.MinMsgSize
			if opt := query.IsEdns0(); opt != nil {
				size = int(opt.UDPSize())
			}
			reply.Truncate(size)
		}
		_ = w.WriteMsg(reply)
	})
	u.address = loopback.For(t) // a free UDP port may be in use over TCP
	packets, err := net.ListenPacket("udp", u.address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", u.address)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: l, Handler: handler}} {
		go func() { _ = s.ActivateAndServe() }()
	}
	t.Cleanup(func() { packets.Close(); l.Close() })
	return u
}

// zone answers for unknown.org, and with many records for large.org; bad.org fails, and of others it knows nothing.
func zone(q dns.Question, reply *dns.Msg) {
	switch strings.ToLower(q.Name) {
	case "unknown.org.":
		if q.Qtype == dns.TypeA {
			reply.Answer = append(reply.Answer, rr(q.Name+" 60 IN A 198.51.100.1"))
		} else {
			reply.Ns = append(reply.Ns, rr("org. 60 IN SOA ns.org. admin.org. 1 1 1 1 60"))
		}
	case "large.org.":
		for i := range 100 {
			reply.Answer = append(reply.Answer, rr(fmt.Sprintf("%s 60 IN A 198.51.100.%d", q.Name, i)))
		}
	case "bad.org.":
		reply.Rcode = dns.RcodeServerFailure
	case "web.shop.svc.cluster.local.":
		reply.Answer = append(reply.Answer, rr(q.Name+" 60 IN TXT \"asked\""))
	default:
		reply.Rcode = dns.RcodeNameError
	}
}

func rr(text string) dns.RR {
	r, err := dns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return r
}

// serving starts a server for the Pod of shop, and returns it with its address.
func serving(t *testing.T, upstreams ...string) (*Server, string) {
	t.Helper()
	s := New(Config{Listen: []string{loopback.For(t)}, Servers: upstreams, Place: shop, Log: obs.NewSampled(slog.New(slog.DiscardHandler))})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, s.Addresses()[0]
}

// query sends a query as an application does.
func query(t *testing.T, network, server, name string, kind uint16) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, kind)
	client := &dns.Client{Net: network, Timeout: time.Minute}
	reply, _, err := client.Exchange(m, server)
	if err != nil {
		t.Fatalf("%s %s: %v", network, name, err)
	}
	return reply
}

// said returns a reply as one line: its code, and its answers, sorted except for the alias.
func said(m *dns.Msg) string {
	var out []string
	for _, r := range m.Answer {
		switch r := r.(type) {
		case *dns.A:
			out = append(out, strings.ToLower(r.Hdr.Name)+" "+r.A.String())
		case *dns.AAAA:
			out = append(out, strings.ToLower(r.Hdr.Name)+" "+r.AAAA.String())
		case *dns.CNAME:
			out = append(out, "-> "+r.Target)
		default:
			out = append(out, r.String())
		}
	}
	slices.Sort(out)
	return dns.RcodeToString[m.Rcode] + " " + strings.Join(out, ", ")
}

func TestServer(t *testing.T) {
	up := newUpstream(t, zone)
	s, at := serving(t, up.address)
	if s.Ready() {
		t.Error("ready without a table")
	}
	if got := said(query(t, "udp", at, "unknown.org.", dns.TypeA)); got != "SERVFAIL " {
		t.Errorf("before there is a table: %s", got)
	}
	s.Take(meshNames())
	if !s.Ready() {
		t.Error("not ready with a table")
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, test := range []struct {
			name string
			kind uint16
			want string
		}{
			{"web.shop.svc.cluster.local.", dns.TypeA, "NOERROR web.shop.svc.cluster.local. 10.0.0.1"},
			{"WEB.", dns.TypeA, "NOERROR web. 10.0.0.1"},
			{"web.", dns.TypeAAAA, "NOERROR web. fd00::1"},
			{"db.", dns.TypeA, "NOERROR db. 10.1.0.1, db. 10.1.0.2"},
			{"pay.example.org.", dns.TypeAAAA, "NOERROR "},
			{"pay.example.org.shop.svc.cluster.local.", dns.TypeA, "NOERROR -> pay.example.org., pay.example.org. 240.240.0.1"},
			{"a.example.com.", dns.TypeA, "NOERROR a.example.com. 240.240.0.3"},
			{"unknown.org.", dns.TypeA, "NOERROR unknown.org. 198.51.100.1"},
			{"unknown.org.", dns.TypeAAAA, "NOERROR "},
			{"none.org.", dns.TypeA, "NXDOMAIN "},
			{"bad.org.", dns.TypeA, "SERVFAIL "},
			{"web.shop.svc.cluster.local.", dns.TypeTXT, "NOERROR web.shop.svc.cluster.local.\t60\tIN\tTXT\t\"asked\""},
		} {
			reply := query(t, network, at, test.name, test.kind)
			if got := said(reply); got != test.want {
				t.Errorf("%s %s %s: %s, want %s", network, test.name, dns.TypeToString[test.kind], got, test.want)
			}
			if reply.Question[0].Name != test.name {
				t.Errorf("%s: the question is %s", test.name, reply.Question[0].Name)
			}
		}
	}
	if reply := query(t, "udp", at, "large.org.", dns.TypeA); !reply.Truncated || len(reply.Answer) >= 100 { // the client takes no more than 512 bytes
		t.Errorf("a large answer over UDP: %d records, truncated %t", len(reply.Answer), reply.Truncated)
	}
	if reply := query(t, "tcp", at, "large.org.", dns.TypeA); reply.Truncated || len(reply.Answer) != 100 {
		t.Errorf("a large answer over TCP: %d records, truncated %t", len(reply.Answer), reply.Truncated)
	}
}

// A server is queried once for a cached answer, the next server is queried if the first one fails, and answers match
// their questions.
func TestForward(t *testing.T) {
	up := newUpstream(t, zone)
	broken := newUpstream(t, func(_ dns.Question, reply *dns.Msg) { reply.Rcode = dns.RcodeRefused })
	liar := newUpstream(t, func(_ dns.Question, reply *dns.Msg) { reply.Question[0].Name = "other.org." })
	refuses := loopback.For(t) // no server listens there
	echo := newUpstream(t, func(_ dns.Question, reply *dns.Msg) { reply.Response = false })
	s, at := serving(t, liar.address, echo.address, refuses, up.address)
	s.Take(nil)
	if got := said(query(t, "udp", at, "unknown.org.", dns.TypeA)); got != "NOERROR unknown.org. 198.51.100.1" || up.asked.Load() != 1 {
		t.Errorf("after servers whose messages are no answers: %s", got)
	}
	s, at = serving(t, broken.address, liar.address, refuses, up.address)
	s.Take(nil)
	for range 3 {
		if got := said(query(t, "udp", at, "unknown.org.", dns.TypeA)); got != "NOERROR unknown.org. 198.51.100.1" {
			t.Error(got)
		}
	}
	if n := up.asked.Load(); n != 2 {
		t.Errorf("the server was asked %d times for two answers that stand", n)
	}
	for range 2 {
		query(t, "udp", at, "bad.org.", dns.TypeA)
	}
	if n := up.asked.Load(); n != 4 {
		t.Errorf("a failure was kept: the server was asked %d times", n)
	}
	alone, at := serving(t)
	alone.Take(nil)
	if got := said(query(t, "udp", at, "unknown.org.", dns.TypeA)); got != "SERVFAIL " {
		t.Errorf("without a server: %s", got)
	}
}

// A query that the agent forwards and that comes back, because redirection does not exempt it, is answered at once and
// not forwarded again.
func TestNoLoop(t *testing.T) {
	var log bytes.Buffer
	s := New(Config{Listen: []string{loopback.For(t)}, Servers: []string{"set below"}, Place: shop, Log: obs.NewSampled(slog.New(slog.NewTextHandler(&log, nil)))})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	at := s.Addresses()[0]
	s.forward.servers[0] = at // the server of the Pod is the agent itself
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.Take(nil)
	for _, network := range []string{"udp", "tcp"} {
		if got := said(query(t, network, at, "unknown.org.", dns.TypeA)); got != "SERVFAIL " {
			t.Error(got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "redirected back to the agent") || len(s.forward.own) != 0 {
		t.Errorf("nothing was noticed, or %d sockets of the forwarder are noted after all has ended:\n%s", len(s.forward.own), &log)
	}
}

// Queries above the limit are not answered, and those that wait within the limit are.
func TestQueriesAreBounded(t *testing.T) {
	hold, waiting := make(chan struct{}), make(chan struct{}, 2*maxQueries)
	up := newUpstream(t, func(q dns.Question, reply *dns.Msg) {
		waiting <- struct{}{}
		<-hold
		zone(q, reply)
	})
	s, at := serving(t, up.address)
	s.Take(meshNames())
	for range maxQueries { // all places but none
		s.slots <- struct{}{}
	}
	<-s.slots // frees one slot
	answered := make(chan string, 1)
	go func() {
		m := new(dns.Msg)
		m.SetQuestion("unknown.org.", dns.TypeA)
		reply, _, err := (&dns.Client{Timeout: time.Minute}).Exchange(m, at)
		if err != nil {
			answered <- err.Error()
			return
		}
		answered <- said(reply)
	}()
	<-waiting
	m := new(dns.Msg)
	m.SetQuestion("web.", dns.TypeA)
	if reply, _, err := (&dns.Client{Timeout: 200 * time.Millisecond}).Exchange(m, at); err == nil {
		t.Errorf("one more is answered: %s", said(reply))
	}
	close(hold)
	if got := <-answered; got != "NOERROR unknown.org. 198.51.100.1" {
		t.Errorf("the one that waited: %s", got)
	}
	s.slots <- struct{}{} // the slot is freed after the answer
	<-s.slots
	if got := said(query(t, "udp", at, "web.", dns.TypeA)); got != "NOERROR web. 10.0.0.1" {
		t.Errorf("afterwards: %s", got)
	}
}

// The number of connections is limited; a further connection waits until another ends.
func TestConnectionsAreBounded(t *testing.T) {
	s, at := serving(t)
	s.Take(meshNames())
	var all []net.Conn
	for range maxConnections {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
		conn := &dns.Conn{Conn: c} // an answer proves that it was accepted
		m := new(dns.Msg)
		m.SetQuestion("web.", dns.TypeA)
		if err := conn.WriteMsg(m); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ReadMsg(); err != nil {
			t.Fatal(err)
		}
	}
	m := new(dns.Msg)
	m.SetQuestion("web.", dns.TypeA)
	if _, _, err := (&dns.Client{Net: "tcp", Timeout: 200 * time.Millisecond}).Exchange(m, at); err == nil {
		t.Error("one more is answered")
	}
	all[0].Close()
	if got := said(query(t, "tcp", at, "web.", dns.TypeA)); got != "NOERROR web. 10.0.0.1" {
		t.Error(got)
	}
}

// A message that is not a query does not affect the server.
func TestGarbage(t *testing.T) {
	s, at := serving(t)
	s.Take(meshNames())
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, b := range []string{"", "x", strings.Repeat("\xff", 512), strings.Repeat("\x00", 65000)} {
		_, _ = c.Write([]byte(b))
	}
	many := new(dns.Msg)
	many.SetQuestion("web.", dns.TypeA)
	many.Question = append(many.Question, many.Question[0])
	reply, _, err := (&dns.Client{Timeout: time.Minute}).Exchange(many, at)
	if err != nil || reply.Rcode != dns.RcodeFormatError {
		t.Errorf("two questions: %v %v", reply, err)
	}
	if got := said(query(t, "udp", at, "web.", dns.TypeA)); got != "NOERROR web. 10.0.0.1" {
		t.Error(got)
	}
}
