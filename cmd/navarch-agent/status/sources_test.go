package status

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/obs"
)

// from dials the server from one of this machine's addresses.
func from(t *testing.T, s *httptest.Server, address string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// asks returns the status of a response on a separate connection.
func asks(t *testing.T, s *httptest.Server, address, path string) int {
	t.Helper()
	c := from(t, s, address)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", path)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%s of %s: %v", path, address, err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// A client that occupies all connections of a port silently, and reconnects, does not lock out a kubelet.
// Promise: security-connections.md#ports-of-an-agent
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	log := &envoytest.Output{}
	s := serveTo(t, text("ok"), nil, nil, obs.NewSampled(slog.New(slog.NewTextHandler(log, nil))))
	for i := range 3 * limits.Connections {
		c := from(t, s, fmt.Sprintf("127.0.0.%d", 2+i%3))
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil { // each is let in, and stays
			t.Fatal(err)
		}
	}
	// The agent answers that it is not ready.
	if code := asks(t, s, "127.0.0.9", "/healthz/ready"); code != http.StatusServiceUnavailable {
		t.Errorf("readiness: %d", code)
	}
	if !strings.Contains(log.String(), "the oldest connection of one source was closed") {
		t.Errorf("none had to go: %s", log)
	}
}

// One source has at most 64 connections to the port, even if others would fit: a further one closes its oldest.
// Promise: security-connections.md#ports-of-an-agent
func TestConnectionsOfOneSource(t *testing.T) {
	s := serveTo(t, text("ok"), nil, nil, nil)
	var first *bufio.Reader
	for i := range 65 {
		c := from(t, s, "127.0.0.2")
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		answers := bufio.NewReader(c)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // the rest of the answer
		if i == 0 {
			first = answers
			if err := c.SetReadDeadline(time.Now().Add(limits.Idle / 2)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := first.ReadByte(); err == nil || // not closed for silence, which takes limits.Idle
		errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest of 65 connections stays: %v", err)
	}
}

// A client that occupies all turns of probes and scrapes, which hang, is refused further ones. Another source is
// answered at once, and gets the place of one of these.
// Promise: security-connections.md#ports-of-an-agent
func TestTurnsAreFairBySource(t *testing.T) {
	begun := make(chan struct{}, maxProbes+maxScrapes)
	hangs := func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	}
	hung, well := httptest.NewServer(http.HandlerFunc(hangs)), httptest.NewServer(text("ok"))
	t.Cleanup(well.Close)
	t.Cleanup(hung.Close)
	s := serve(t, hangs, nil, Probes{"/app-health/a/livez": {HTTP: &HTTPProbe{Port: portOf(t, hung.Listener)}, TimeoutSeconds: 60},
		"/app-health/b/livez": {HTTP: &HTTPProbe{Port: portOf(t, well.Listener)}, TimeoutSeconds: 60}})
	var held []net.Conn
	ask := func(path string, n int) {
		for range n {
			c := from(t, s, "127.0.0.2")
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n%s: 60\r\n\r\n", path, timeoutHeader)
			<-begun
			held = append(held, c)
		}
	}
	ask("/app-health/a/livez", maxProbes)
	ask("/metrics", maxScrapes)
	for _, path := range []string{"/app-health/b/livez", "/metrics"} {
		if code := asks(t, s, "127.0.0.2", path); code != http.StatusServiceUnavailable {
			t.Errorf("one more of the same source, %s: %d", path, code)
		}
	}
	if code := asks(t, s, "127.0.0.3", "/app-health/b/livez"); code != http.StatusOK {
		t.Errorf("a probe of another source: %d", code)
	}
	resp, err := http.ReadResponse(bufio.NewReader(held[0]), nil)
	if err == nil && resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("the oldest probe, whose place was taken: %s", resp.Status)
	}
	other := from(t, s, "127.0.0.3")
	fmt.Fprintf(other, "GET /metrics HTTP/1.1\r\nHost: a\r\n%s: 60\r\n\r\n", timeoutHeader)
	<-begun // Envoy was asked for it, so it has a turn
}
