package attack

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Only loopback addresses are attacked, and only from loopback addresses. Names are refused, because they could resolve
// to any address.
func TestOnlyLoopback(t *testing.T) {
	for _, c := range []Config{
		{Addr: "192.0.2.1:15012"}, {Addr: "10.0.0.1:15012"}, {Addr: "0.0.0.0:15012"}, {Addr: "[::]:15012"}, {Addr: "[2001:db8::1]:15012"}, {Addr: "128.0.0.1:1"},
		{Addr: "[::ffff:192.0.2.1]:1"}, {Addr: "localhost:15012"}, {Addr: "istiod.istio-system.svc:15012"}, {Addr: "127.0.0.1"}, {Addr: ""},
		{Addr: "127.0.0.1:15012", Pages: "192.0.2.1:8080"}, {Addr: "127.0.0.1:15012", Pages: "localhost:8080"}, {Addr: "127.0.0.1:15012", Webhooks: "192.0.2.1:15017"}, {Addr: "127.0.0.1:15012", From: "192.0.2.1"}, {Addr: "127.0.0.1:15012", From: "localhost"},
	} {
		over, cancel := context.WithCancel(t.Context())
		cancel() // nothing is sent to these, even where this test fails
		tally := &Tally{}
		if err := Run(over, c, tally); err == nil || !strings.Contains(err.Error(), "no IP address of loopback") {
			t.Errorf("%s from %q: %v", c.Addr, c.From, err)
		}
	}
	for _, c := range []Config{{Addr: "127.0.0.1:1"}, {Addr: "[::1]:1"}, {Addr: "127.9.9.9:1", From: "127.0.0.66"}, {Addr: "[::ffff:127.0.0.1]:1"}} {
		if err := c.complete(); err != nil {
			t.Error(err)
		}
	}
}

// There are never more concurrent connections than configured, and at most 1,500; each attack has its share.
func TestConnectionsAreBounded(t *testing.T) {
	for _, n := range []int{MinConnections, 99, 100, 150, MaxConnections} {
		c, sum := Config{Connections: n}, 0
		for _, a := range All() {
			if c.share(a) < 1 {
				t.Errorf("%s has no connection of %d", a.Name, n)
			}
			sum += c.share(a)
		}
		if sum > n {
			t.Errorf("%d connections, %d are taken", n, sum)
		}
	}
	for only, want := range map[string]int{"silent": 900, "silent,hello": 450, "silent,names": 900} { // without a credential there are no names
		c := Config{Connections: 900, Even: true, Only: strings.Split(only, ",")}
		if got := c.share(All()[0]); got != want {
			t.Errorf("of %s silent has %d connections of 900, want %d", only, got, want)
		}
	}
	for _, n := range []int{MaxConnections + 1, MinConnections - 1, -1} {
		if err := Run(t.Context(), Config{Addr: "127.0.0.1:1", Connections: n}, &Tally{}); err == nil {
			t.Errorf("%d connections are possible", n)
		}
	}
}

// counted is a listener that knows how many of its connections are open, and where they come from.
type counted struct {
	net.Listener
	mu         sync.Mutex
	open, most int
	sources    map[string]bool
}

type countedConn struct {
	net.Conn
	close func()
}

func (c countedConn) Close() error { c.close(); return c.Conn.Close() }

func (l *counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.most = max(l.most, l.open)
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	l.sources[host] = true
	return countedConn{conn, sync.OnceFunc(func() { l.mu.Lock(); defer l.mu.Unlock(); l.open-- })}, nil
}

// Every attack is carried out, repeats its tries, ends with its context, and uses the configured source address.
func TestAttacksTryAndEnd(t *testing.T) {
	pair, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &counted{Listener: inner, sources: map[string]bool{}}
	defer serve(l, pair)()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer servePages(plain)()
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer servePages(tls.NewListener(secure, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}))()
	c := Config{Addr: inner.Addr().String(), Pages: plain.Addr().String(), Webhooks: secure.Addr().String(), From: "127.0.0.66", Certificate: &pair, Token: "stolen", Identity: "shop/cart", Victim: "bank/teller/teller-1",
		Connections: MinConnections, Names: 100, Hold: time.Second, Pause: 20 * time.Millisecond}
	tally := attackFor(t, c)
	for len(waiting(tally))+len(unreached(tally)) > 0 {
		if c.Hold *= 4; c.Hold > 20*time.Second { // a busy machine needs longer to answer
			t.Fatalf("no second try of %v, no connection of %v: %v", waiting(tally), unreached(tally), tally.Counts())
		}
		tally = attackFor(t, c)
	}
	for name, n := range tally.Counts() {
		over := uint64(0)
		for _, k := range n.Came {
			over += k
		}
		if over != n.Tried {
			t.Errorf("%s: %d tries, %d are over", name, n.Tried, over)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most > 2*c.Connections { // the listener hears of an end when it reads it
		t.Errorf("%d connections at once", l.most)
	}
	if len(l.sources) != 1 || !l.sources[c.From] {
		t.Errorf("from %v", l.sources)
	}
}

// attackFor attacks until nothing is waited for, eight times Hold at most.
func attackFor(t *testing.T, c Config) *Tally {
	ctx, cancel := context.WithTimeout(t.Context(), 8*c.Hold)
	defer cancel()
	tally, done := &Tally{}, make(chan error, 1)
	go func() { done <- Run(ctx, c, tally) }()
	for len(waiting(tally)) > 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return tally
}

// waiting returns the attacks that were not tried twice yet, or whose requests were not answered.
func waiting(t *Tally) (left []string) {
	all := t.Counts()
	for _, a := range All() {
		n := all[a.Name]
		if n.Tried < 2 || a.Credential && (n.Requests < 2 || n.Answers < 1) {
			left = append(left, a.Name)
		}
	}
	return left
}

// unreached returns the attacks with a try that got no connection.
func unreached(t *Tally) (some []string) {
	for name, n := range t.Counts() {
		if n.Came[noConnection]+n.Came["Unavailable"] > 0 {
			some = append(some, name)
		}
	}
	return some
}

// Without a credential only attacks that need none are carried out; half a credential is refused.
func TestCredentials(t *testing.T) {
	addr, _, webhooks, stop, err := Sink()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tally, done := &Tally{}, make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Addr: addr, Webhooks: webhooks, Connections: MinConnections, Identity: "a/b", Victim: "a/b/c", Token: "x"}, tally)
	}()
	for len(tally.Counts()) < 8 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, a := range All() {
		if tried := tally.Counts()[a.Name].Tried; (tried > 0) == a.Credential {
			t.Errorf("%s was tried %d times", a.Name, tried)
		}
	}
	for _, c := range []Config{{Token: "x", Identity: "a/b"}, {Token: "x", Victim: "a/b/c"}, {Identity: "a/b", Victim: "a/b/c"}, {Token: "x", Identity: "a", Victim: "b"}} {
		if c.Addr, c.Certificate = addr, &(tls.Certificate{}); Run(ctx, c, tally) == nil {
			t.Errorf("%+v is possible", c)
		}
	}
}
