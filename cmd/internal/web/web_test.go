package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/obs"
)

const deadline = 30 * time.Second

// serving runs a server until the test ends. Its page reads the request's body, and reports whether it could.
func serving(t *testing.T, limits Limits) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			}
		}), limits, nil)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// client is a connection from one of this machine's addresses.
type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, from, to string) client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: deadline}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	return client{t, c}
}

// asks sends a request and returns the status of the response, or the reason why there was no response.
func (c client) asks(request string) (int, error) {
	c.t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// ended waits until the server has closed the connection.
func (c client) ended() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Error("the connection is still open")
	}
}

const get = "GET / HTTP/1.1\r\nHost: localhost\r\n"

// Promise: security-connections.md#http-ports-of-navarchd
func TestLimitsOfRequests(t *testing.T) {
	address := serving(t, Limits{Request: time.Second, Body: 10})
	for name, c := range map[string]struct {
		request string
		want    int
	}{
		"small":     {get + "\r\n", 200},
		"head":      {get + "X: " + strings.Repeat("x", 30<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"long body": {get + "Content-Length: 11\r\n\r\n12345678901", http.StatusRequestEntityTooLarge},
		"slow body": {get + "Content-Length: 5\r\n\r\n1", http.StatusRequestEntityTooLarge}, // the page says so, not the server
	} {
		if got, err := dial(t, "127.0.0.1", address).asks(c.request); got != c.want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, c.want)
		}
	}
}

// Promise: security-connections.md#http-ports-of-navarchd
func TestLimitsOfSilence(t *testing.T) {
	impatient := serving(t, Limits{Header: 10 * time.Millisecond})
	dial(t, "127.0.0.1", impatient).ended() // the client sends nothing
	slow := dial(t, "127.0.0.1", impatient)
	_, _ = io.WriteString(slow, get) // may fail: the server may have closed the connection
	slow.ended()
	idle := dial(t, "127.0.0.1", serving(t, Limits{Idle: 10 * time.Millisecond}))
	if code, err := idle.asks(get + "\r\n"); code != 200 {
		t.Fatal(code, err)
	}
	idle.ended()
}

// A client that does not read a response loses the connection, by default after two minutes.
// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestUnreadAnswerEndsItsConnection(t *testing.T) {
	var usual Limits
	if usual.fill(); usual.Answer != 2*time.Minute {
		t.Errorf("an answer has %v", usual.Answer)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	written, done := make(chan error, 1), make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					written <- err
					return
				}
			}
		}), Limits{Answer: 100 * time.Millisecond}, nil)
	}()
	if _, err := io.WriteString(dial(t, "127.0.0.1", l.Addr().String()), get+"\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-written:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(deadline):
		t.Error("an answer that nobody reads is being written still")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A client that keeps opening connections closes only its own: clients of other addresses are answered, and their open
// connections stay.
// Promise: security-connections.md#http-ports-of-navarchd
func TestConnectionsAreBounded(t *testing.T) {
	const total, perSource = 12, 8
	address := serving(t, Limits{Connections: total, PerSource: perSource})
	early := dial(t, "127.0.0.2", address)
	if code, err := early.asks(get + "\r\n"); code != 200 {
		t.Fatal(code, err)
	}
	flood := map[string][]client{}
	for range 5 * total {
		for _, from := range []string{"127.0.0.3", "127.0.0.4"} {
			flood[from] = append(flood[from], dial(t, from, address))
		}
	}
	for from, all := range flood {
		all[0].ended()
		if code, err := all[len(all)-1].asks(get + "\r\n"); code != 200 {
			t.Errorf("the newest from %s: %d, %v", from, code, err)
		}
	}
	if code, err := dial(t, "127.0.0.5", address).asks(get + "\r\n"); code != 200 {
		t.Errorf("one that comes: %d, %v", code, err)
	}
	if code, err := early.asks(get + "\r\n"); code != 200 {
		t.Errorf("one that was there before: %d, %v", code, err)
	}
}

// The limits apply, and nothing is stored about connections that have ended.
func TestBounded(t *testing.T) {
	var log bytes.Buffer
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := bound(l, 4, 3, obs.NewSampled(slog.New(slog.NewTextHandler(&log, nil))))
	defer b.Close()
	var all []net.Conn
	for _, from := range []string{"127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		dial(t, from, l.Addr().String())
		c, err := b.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, c); b.ledger.Taken() > 4 {
			t.Fatalf("%d connections, want 4 at most", b.ledger.Taken())
		}
	}
	for i, closed := range []bool{true, true, false, false, false, false} { // the oldest of 127.0.0.2, twice
		if err := all[i].SetDeadline(time.Time{}); errors.Is(err, net.ErrClosed) != closed {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if n := strings.Count(log.String(), "too many HTTP connections"); n != 1 || !strings.Contains(log.String(), "127.0.0.2:") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	for _, c := range all {
		c.Close()
		c.Close()
	}
	if n := b.ledger.Taken(); n != 0 {
		t.Errorf("%d are kept", n)
	}
}

// A server that shuts down closes each connection with its next answer, and answers on others until then.
func TestServeLeaves(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	served := make(chan error, 1)
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })
	go func() { served <- Serve(ctx, l, answer, Limits{Leave: 2 * time.Second}, nil) }()
	client := &http.Client{Transport: &http.Transport{}}
	ask := func() (closes bool) {
		res, err := client.Post("http://"+l.Addr().String(), "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatalf("a request is not answered: %v", err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "here" {
			t.Fatalf("%q %v", body, err)
		}
		return res.Close
	}
	if ask() {
		t.Error("a connection is closed while the server stays")
	}
	leave()
	for !ask() { // until the server has noticed
	}
	if !ask() {
		t.Error("another connection is kept")
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The default limits for callers of an HTTP address have these values.
// Promise: security-connections.md#http-ports-of-navarchd
func TestDefaultLimits(t *testing.T) {
	want := Limits{HeaderBytes: 16 << 10, Header: 5 * time.Second, Request: 10 * time.Second, Answer: 2 * time.Minute, Idle: time.Minute,
		Connections: 256, PerSource: 64, Body: 64 << 10}
	var got Limits
	if got.fill(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
