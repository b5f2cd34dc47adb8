package preauth

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
)

// Closing the listener ends an Accept that waits for room.
func TestCloseWhileWaiting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limiter := New(Limits{Total: 1, Progress: long, Credential: long, Shared: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}, nil)
	bounded := limiter.Listen(l)
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	first, err := bounded.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := first.Read(make([]byte, 1)); err != nil { // the server reads from it
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := bounded.Accept()
		done <- err
	}()
	bounded.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A connection that loses its place to another source is closed at once. This applies even if it had ended before, and
// its place was kept: it no longer counts.
// Promise: security-connections.md#handshakes
func TestWhoLosesItsPlaceIsClosed(t *testing.T) {
	w := start(t, Limits{Total: 3, Progress: long, Credential: long})
	hello := w.hello()
	begun := func(from string) net.Conn {
		c := w.raw(from)
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	refused := w.http2("127.0.0.2")
	_ = refused.call(checked, hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 20<<10)})
	for !strings.Contains(w.log.String(), "cause=too_long_headers") {
		time.Sleep(time.Millisecond)
	}
	begins := begun("127.0.0.2")
	begun("127.0.0.2")
	if !w.open(refused.conn) {
		t.Error("the place of who was refused is not kept")
	}
	begun("127.0.0.3")
	w.ended("who was refused", refused.conn)
	begun("127.0.0.4")
	w.ended("who begins", begins)
}
