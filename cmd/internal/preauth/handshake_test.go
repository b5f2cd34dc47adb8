package preauth

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A handshake that fails by the client's fault is logged by its cause; one with a silent client is not logged.
func TestFailedHandshakesAreLogged(t *testing.T) {
	foreign, _ := pair(t)
	for cause, client := range map[string]func(*harness, net.Conn){
		"": func(_ *harness, c net.Conn) { c.Close() },
		"the client does not speak TLS": func(_ *harness, c net.Conn) {
			_, _ = c.Write([]byte("PRI * HTTP/2.0\r\n\r\n"))
			_, _ = io.Copy(io.Discard, c)
		},
		"alert of the client": func(w *harness, c net.Conn) {
			conf := w.tls()
			conf.ServerName = "other"
			_ = tls.Client(c, conf).Handshake()
			_, _ = io.Copy(io.Discard, c)
		},
		"certificate of the client": func(w *harness, c net.Conn) {
			conf := w.tls()
			conf.Certificates = []tls.Certificate{foreign}
			conf.InsecureSkipVerify = true
			over := tls.Client(c, conf)
			_ = over.Handshake()
			_, _ = io.Copy(io.Discard, over)
		},
	} {
		w := start(t, Limits{})
		client(w, w.raw("127.0.0.2"))
		w.served("afterwards", "127.0.0.2") // its turn came later, or its handshake had ended
		for until := time.Now().Add(patience); (w.limiter.Open() > 0 || cause != "" && w.log.String() == "") && time.Now().Before(until); {
			time.Sleep(time.Millisecond) // gRPC closes the connection before the fault is logged
		}
		if got := w.log.String(); (got == "") != (cause == "") || !strings.Contains(got, cause) || cause != "" && !strings.Contains(got, "peer=127.0.0.2:") {
			t.Errorf("%s: %s", cause, got)
		}
	}
}

// A place of a shared source is kept for a fifth of the time for a credential, and not for longer because of a
// handshake that ended meanwhile.
func TestPlaceInASharedSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, server := net.Pipe()
		defer server.Close()
		c := New(Limits{}, nil).conn(server)
		c.shared = true
		c.enter()
		time.Sleep(1800 * time.Millisecond)
		c.step.Store(time.Now().UnixNano())
		for _, after := range []struct {
			pause time.Duration
			busy  bool
		}{{200*time.Millisecond - 1, true}, {49 * time.Millisecond, true}, {2 * time.Millisecond, false}} {
			if time.Sleep(after.pause); busy(c) != after.busy {
				t.Errorf("%v later: busy %v", after.pause, !after.busy)
			}
		}
	})
}

// A client that ends connections early does not get more handshakes computed than one that stays: its place becomes
// free only when another connection could have displaced it. The client sees the end of a connection only then, so that
// it does not wait for a second place. Two kinds of connections free their place at once: those without any
// computation, like that of a load balancer that probes the port, and those with an accepted credential.
// Promise: security-connections.md#handshakes
func TestPlaceOfWhoEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			shared, step, shown bool
			keeps               time.Duration
		}{
			"shared":              {true, true, false, 2 * time.Second},
			"its own":             {false, true, false, 250 * time.Millisecond},
			"nothing computed":    {true, false, false, 0},
			"a credential":        {true, true, true, 0},
			"a credential, alone": {false, true, true, 0},
		} {
			client, server := net.Pipe()
			seen := make(chan error, 1)
			go func() {
				_, err := client.Read(make([]byte, 1))
				seen <- err
			}()
			l := New(Limits{}, nil)
			one := l.conn(server)
			one.shared = c.shared
			one.enter()
			if c.step {
				one.step.Store(time.Now().UnixNano())
			}
			if c.shown {
				one.authenticated()
			}
			one.Close()
			one.Close()
			if c.keeps > 0 {
				if time.Sleep(c.keeps - 1); l.Open() != 1 || len(seen) > 0 {
					t.Errorf("%s: its place is free %v early, or its client sees the end", name, time.Nanosecond)
				}
				if _, err := one.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: it is read on: %v", name, err)
				}
				time.Sleep(time.Nanosecond)
			}
			if synctest.Wait(); l.Open() != 0 || len(seen) == 0 {
				t.Errorf("%s: its place is taken after %v, or its client does not see the end", name, c.keeps)
			}
		}
	})
}

func busy(c *conn) bool {
	is, _ := c.Busy(time.Now())
	return is
}

// The default limits of a connection without a credential are the figures of deploy/docs/security-connections.md.
// Promise: security-connections.md#places-and-time
func TestDefaultLimits(t *testing.T) {
	want := Limits{Total: 512, PerSource: 128, Known: 32, Waiting: 4096, Credential: 10 * time.Second, Progress: 250 * time.Millisecond,
		Bytes: 32 << 10, Frames: 64, List: 12 << 10, Calls: 16, Headers: 32 << 10, First: 10 * time.Second}
	if got := New(Limits{}, nil).limits; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
