package hostnames

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// server is a DNS server on loopback. Its zone is records as text, by name and type; "SERVFAIL" is an answer, too, and
// "" none at all.
type server struct {
	mu    sync.Mutex
	zone  map[string]string
	asked map[string]int
	at    string
}

func start(t *testing.T) *server {
	t.Helper()
	s := &server{zone: map[string]string{}, asked: map[string]int{}}
	packets, streams := listen(t)
	s.at = packets.LocalAddr().String()
	for _, d := range []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: streams, Handler: s}} {
		ready := make(chan struct{})
		d.NotifyStartedFunc = func() { close(ready) }
		ended := make(chan error, 1)
		go func() { ended <- d.ActivateAndServe() }()
		<-ready
		t.Cleanup(func() { _ = d.Shutdown(); <-ended })
	}
	return s
}

// listen is both kinds of listener at one port.
func listen(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if streams, err := net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, streams
		}
		_ = packets.Close() // another process has the port
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// ServeDNS implements dns.Handler.
func (s *server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	key := strings.TrimSuffix(q.Question[0].Name, ".") + " " + dns.TypeToString[q.Question[0].Qtype]
	s.asked[key]++
	text, known := s.zone[key]
	s.mu.Unlock()
	reply := new(dns.Msg)
	reply.SetReply(q)
	switch {
	case text == "silent":
		return
	case text == "SERVFAIL":
		reply.Rcode = dns.RcodeServerFailure
	case !known:
		reply.Rcode = dns.RcodeNameError
	}
	for _, line := range strings.Split(text, "\n") {
		if r, err := dns.NewRR(line); err == nil && r != nil {
			reply.Answer = append(reply.Answer, r)
		}
	}
	if _, byUDP := w.RemoteAddr().(*net.UDPAddr); byUDP && reply.Len() > 512 {
		reply.Answer, reply.Truncated = nil, true
	}
	_ = w.WriteMsg(reply)
}

func (s *server) set(zone map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone = zone
}

// An answer has all addresses of both families, for their TTL within the bounds. If no server answers, or the name is
// gone, the previous addresses stay in use.
func TestResolve(t *testing.T) {
	s := start(t)
	many := ""
	for i := range 60 {
		many += fmt.Sprintf("lb.example.com. 60 IN A 192.0.2.%d\n", i+1)
	}
	for name, c := range map[string]struct {
		a, aaaa string // no: there is no such name
		before  []string
		want    string
	}{
		"one":                  {"lb.example.com. 60 IN A 192.0.2.1", "", nil, "[192.0.2.1] 1m0s "},
		"several, both":        {"lb.example.com. 90 IN A 192.0.2.2\nlb.example.com. 90 IN A 192.0.2.1", "lb.example.com. 70 IN AAAA 2001:db8::1", nil, "[192.0.2.1 192.0.2.2 2001:db8::1] 1m10s "},
		"a short time":         {"lb.example.com. 1 IN A 192.0.2.1", "", nil, "[192.0.2.1] 30s "},
		"a long time":          {"lb.example.com. 86400 IN A 192.0.2.1", "", nil, "[192.0.2.1] 1h0m0s "},
		"an alias":             {"lb.example.com. 45 IN CNAME x.example.net.\nx.example.net. 300 IN A 192.0.2.1", "", nil, "[192.0.2.1] 45s "},
		"no such name":         {"no", "no", []string{"192.0.2.9"}, "[192.0.2.9] 30s A: there is no such name; AAAA: there is no such name"},
		"no such name, ever":   {"no", "no", nil, "[] 30s A: there is no such name; AAAA: there is no such name"},
		"no address":           {"", "", []string{"192.0.2.9"}, "[192.0.2.9] 30s it has no address"},
		"a server that cannot": {"SERVFAIL", "SERVFAIL", []string{"192.0.2.9", "2001:db8::9"}, "[192.0.2.9 2001:db8::9] 30s A: SERVER answers SERVFAIL; AAAA: SERVER answers SERVFAIL"},
		"half of it":           {"SERVFAIL", "lb.example.com. 60 IN AAAA 2001:db8::1", []string{"192.0.2.9", "2001:db8::9"}, "[192.0.2.9 2001:db8::1] 30s A: SERVER answers SERVFAIL"},
		"one empty, one fails": {"", "SERVFAIL", []string{"192.0.2.9"}, "[192.0.2.9] 30s AAAA: SERVER answers SERVFAIL"},
		"addresses of no use":  {"lb.example.com. 60 IN A 127.0.0.1\nlb.example.com. 60 IN A 0.0.0.0", "lb.example.com. 60 IN AAAA ::ffff:192.0.2.1", nil, "[] 30s it has no address"},
		"more than fit":        {many, "", nil, "[192.0.2.1 192.0.2.10 192.0.2.11 192.0.2.12 192.0.2.13 192.0.2.14 192.0.2.15 192.0.2.16 192.0.2.17 192.0.2.18 192.0.2.19 192.0.2.2 192.0.2.20 192.0.2.21 192.0.2.22 192.0.2.23] 1m0s it has 60 addresses, of which the first 16 are used"},
	} {
		zone := map[string]string{}
		if c.a != "no" {
			zone["lb.example.com A"] = c.a
		}
		if c.aaaa != "no" {
			zone["lb.example.com AAAA"] = c.aaaa
		}
		s.set(zone)
		a := Servers{s.at}.Resolve(t.Context(), "lb.example.com", c.before)
		got := fmt.Sprint(a.Addresses, " ", a.Again, " ", strings.ReplaceAll(a.Wrong, s.at, "SERVER"))
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
	s.set(map[string]string{"lb.example.com A": "lb.example.com. 60 IN A 192.0.2.1", "lb.example.com AAAA": ""})
	free, err := net.ListenPacket("udp", "127.0.0.1:0") // not read by any server
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	if a := (Servers{free.LocalAddr().String(), s.at}).Resolve(t.Context(), "lb.example.com", nil); fmt.Sprint(a.Addresses) != "[192.0.2.1]" || a.Wrong != "" {
		t.Errorf("the first server is silent: %+v", a)
	}
	if a := (Servers{}).Resolve(t.Context(), "lb.example.com", []string{"192.0.2.9"}); fmt.Sprint(a.Addresses) != "[192.0.2.9]" || a.Wrong == "" {
		t.Errorf("no server: %+v", a)
	}
}

// heard contains the events that the ingester received.
type heard struct {
	mu     sync.Mutex
	all    map[string]string
	synced bool
}

func (h *heard) emit(events []object.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]string{}
	}
	for _, e := range events {
		switch e.Op {
		case object.Put:
			h.all[e.ID.Name] = fmt.Sprint(normal.ParseResolved(e.Object))
		case object.Delete:
			delete(h.all, e.ID.Name)
		case object.Synced:
			h.synced = true
		case object.Broken, object.Forget:
		}
	}
}

func (h *heard) say() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint(h.synced, " ", h.all)
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

func leads(t *testing.T, h *heard, store *kv.Store, epoch kv.Epoch, resolve func(context.Context, string, []string) Answer) (l *Leader, stop func()) {
	l = New(Config{Resolve: resolve, Emit: h.emit, Log: slog.New(slog.DiscardHandler)})
	return l, kvtest.Run(t, func(ctx context.Context) error { l.Run(ctx, store, epoch); return nil })
}

// Names are resolved again when their responses expire. The last good addresses stay while the server does not answer,
// also for the next leader, which emits everything before any response. A name that is no longer needed is removed, and
// is not resolved again.
func TestLeaders(t *testing.T) {
	s, etcd := start(t), kvtest.Start(t)
	store := etcd.Connect()
	s.set(map[string]string{"a.example.com A": "a.example.com. 60 IN A 192.0.2.1", "a.example.com AAAA": ""})
	again := func(ctx context.Context, name string, before []string) Answer { // time passes quickly
		a := Servers{s.at}.Resolve(ctx, name, before)
		a.Again = 10 * time.Millisecond
		return a
	}
	h := &heard{}
	l, stop := leads(t, h, store, etcd.Elect("a"), again)
	l.Need([]string{"a.example.com"}, false)
	until(t, "it is asked for", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.asked["a.example.com A"] > 1 })
	if got := h.say(); got != "false map[]" {
		t.Errorf("before all names are known %s is told", got)
	}
	l.Need([]string{"a.example.com", "missing.example.com"}, true)
	until(t, "all names were asked for", func() bool { return h.say() == "true map[a.example.com:[192.0.2.1]]" })
	until(t, "one is a problem", func() bool {
		p := l.Problems()
		return len(p) == 1 && p[0].Name == "missing.example.com" && strings.Contains(p[0].Message, "no such name")
	})
	s.set(map[string]string{"a.example.com A": "a.example.com. 60 IN A 192.0.2.2\na.example.com. 60 IN A 192.0.2.3", "a.example.com AAAA": "", "missing.example.com A": "missing.example.com. 60 IN A 192.0.2.4", "missing.example.com AAAA": ""})
	until(t, "both are as the server says now", func() bool {
		return h.say() == "true map[a.example.com:[192.0.2.2 192.0.2.3] missing.example.com:[192.0.2.4]]"
	})
	until(t, "the problem ends", func() bool { return len(l.Problems()) == 0 })
	s.set(map[string]string{"a.example.com A": "SERVFAIL", "a.example.com AAAA": "SERVFAIL"})
	until(t, "the server fails", func() bool { return len(l.Problems()) == 2 })
	last := "true map[a.example.com:[192.0.2.2 192.0.2.3] missing.example.com:[192.0.2.4]]"
	if got := h.say(); got != last {
		t.Errorf("the server fails: %s", got)
	}
	stop()

	blocked := func(ctx context.Context, _ string, before []string) Answer {
		<-ctx.Done()
		return Answer{Addresses: before}
	}
	h = &heard{}
	l, stop = leads(t, h, store, etcd.Elect("b"), blocked)
	l.Need([]string{"a.example.com", "missing.example.com"}, true)
	until(t, "another leader knows what was known", func() bool { return h.say() == last })
	stop()

	h = &heard{}
	l, _ = leads(t, h, store, etcd.Elect("c"), again)
	l.Need([]string{"missing.example.com"}, true)
	until(t, "one is needed no more", func() bool { return h.say() == "true map[missing.example.com:[192.0.2.4]]" })
	if blobs, _, err := store.Blobs(t.Context(), folder, 0); err != nil || len(blobs) != 1 || string(blobs[0].Raw) != `{"missing.example.com":["192.0.2.4"]}` {
		t.Errorf("stored is %v, %v", blobs, err)
	}
}

// Without names there is nothing to wait for; of too many the first are resolved, few at a time, and the others are a
// problem.
func TestBounds(t *testing.T) {
	etcd := kvtest.Start(t)
	var mu sync.Mutex
	asking, highest, asked, full := 0, 0, map[string]bool{}, make(chan struct{})
	h := &heard{}
	l, _ := leads(t, h, etcd.Connect(), etcd.Elect("a"), func(_ context.Context, name string, _ []string) Answer {
		mu.Lock()
		defer mu.Unlock()
		if asking++; asking == parallel && highest < parallel {
			close(full)
		}
		highest, asked[name] = max(highest, asking), true
		mu.Unlock()
		<-full          // the first requests wait until the maximum number is in progress
		for range 100 { // more than may be would meet here
			runtime.Gosched()
		}
		mu.Lock()
		asking--
		return Answer{Addresses: []string{"192.0.2.1"}, Again: time.Hour}
	})
	l.Need(nil, true)
	until(t, "nothing is needed", func() bool { return h.say() == "true map[]" })
	var names []string
	for i := range MostNames + 2 {
		names = append(names, fmt.Sprintf("n%05d.example.com", i))
	}
	l.Need(names, true)
	until(t, "all that fit are resolved", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.all) == MostNames })
	mu.Lock()
	defer mu.Unlock()
	if highest > parallel || len(asked) != MostNames || asked[names[MostNames]] {
		t.Errorf("%d at once, %d in all", highest, len(asked))
	}
	if p := l.Problems(); len(p) != 1 || !strings.HasPrefix(p[0].Message, "2 names") {
		t.Errorf("%v", p)
	}
}
