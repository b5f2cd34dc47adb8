package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// secured is a session and a server of crypto/tls that have shaken hands; the server's side says what the session is sent.
func secured(t *testing.T, server *tls.Config) (*session, *tls.Conn) {
	t.Helper()
	a := newAuthority(t)
	server.Certificates = []tls.Certificate{*a.leaf("", "istiod.test")}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	one, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = one.Close(); _ = other.Close() })
	f, err := New(Config{Addrs: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	s := newSim(f, 0, identities(1)[0])
	s.mu.Lock() // as its goroutine would
	c := newSession(s, one, "x")
	conn := tls.Server(other, server)
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	go func() { done <- conn.HandshakeContext(ctx) }()
	err = c.handshake(ctx, func(Identity) (*tls.Config, error) {
		return &tls.Config{RootCAs: a.pool, ServerName: "istiod.test"}, nil
	})
	if err = errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	for _, end := range []net.Conn{one, other} {
		if err := end.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
	}
	return c, conn
}

// numbers are bytes that say where they stand.
func numbers(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d ", i)
	}
	return b.Bytes()[:n]
}

// TestRecords sends data of every length both ways, to and from crypto/tls: with the suites that a session speaks itself, and
// with a version that it leaves to crypto/tls.
func TestRecords(t *testing.T) {
	for name, c := range map[string]struct {
		server *tls.Config
		own    bool
	}{
		"TLS 1.3": {&tls.Config{}, true}, "TLS 1.2": {&tls.Config{MaxVersion: tls.VersionTLS12}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, server := secured(t, c.server)
			if own := s.records != nil; own != c.own {
				t.Fatalf("the session speaks it itself: %t", own)
			}
			for _, n := range []int{1, 30, 234, 235, 256, 257, 5000, maxPlain - 1, maxPlain, maxPlain + 1, 4 * maxPlain, 300000, 3} {
				want := numbers(n)
				sent := make(chan error, 1)
				go func() { _, err := server.Write(want); sent <- err }()
				got := make([]byte, n)
				if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes from the server: %v", n, err)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
				go func() {
					s.frames()
					s.out.buf.Write(want)
					sent <- s.flush()
				}()
				if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes to the server: %v", n, err)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
			}
			if s.large != nil && len(s.large) != oneRecord && c.own {
				t.Errorf("it waits with a buffer of %d bytes", len(s.large))
			}
			go s.close(false)
			if n, err := server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the server sees the end as %v", err)
			}
		})
	}
}

// TestRecordsOfSuites gives both halves of a connection the same secrets, and looks at what the other makes of records that
// are cut, changed, taken twice or of no type that is spoken.
func TestRecordsOfSuites(t *testing.T) {
	for _, suite := range []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384} {
		size := map[uint16]int{tls.TLS_AES_128_GCM_SHA256: 32, tls.TLS_AES_256_GCM_SHA384: 48}[suite]
		up, down := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size)
		pair := func() (a, b *records) {
			a, err := newRecords(nil, suite, up, down)
			b, failed := newRecords(nil, suite, down, up)
			if err = errors.Join(err, failed); err != nil {
				t.Fatal(err)
			}
			return a, b
		}
		for name, c := range map[string]struct {
			make func(*half) []byte
			want string // of the data, or of the error after "!"
		}{
			"data":            {func(h *half) []byte { return h.seal(nil, recordData, []byte("x")) }, "x"},
			"half of it":      {func(h *half) []byte { b := h.seal(nil, recordData, []byte("x")); return b[:len(b)-1] }, ""},
			"padding":         {func(h *half) []byte { return h.seal(nil, 0, []byte{'x', recordData, 0, 0}) }, "x"},
			"nothing, then x": {func(h *half) []byte { return h.seal(h.seal(nil, recordData, nil), recordData, []byte("x")) }, "x"},
			"a ticket, then x": {func(h *half) []byte {
				return h.seal(h.seal(nil, recordHandshake, []byte{4, 0, 0, 0}), recordData, []byte("x"))
			}, "x"},
			"close_notify": {func(h *half) []byte { return h.seal(nil, recordAlert, []byte{1, 0}) }, "!EOF"},
			"an alert":     {func(h *half) []byte { return h.seal(nil, recordAlert, []byte{2, 42}) }, "!alert 42"},
			"new keys":     {func(h *half) []byte { return h.seal(nil, recordHandshake, []byte{24, 0, 0, 1, 0}) }, "!not spoken"},
			"only padding": {func(h *half) []byte { return h.seal(nil, 0, []byte{0, 0}) }, "!without a type"},
			"a changed byte": {func(h *half) []byte {
				b := h.seal(nil, recordData, []byte("x"))
				b[len(b)-1]++
				return b
			}, "!cannot be opened"},
			"a changed length": {func(h *half) []byte {
				b := append(h.seal(nil, recordData, []byte("x")), 0)
				b[4]++
				return b
			}, "!cannot be opened"},
			"one that was skipped": {func(h *half) []byte {
				h.seal(nil, recordData, []byte("x"))
				return h.seal(nil, recordData, []byte("x"))
			}, "!cannot be opened"},
			"plain text":    {func(*half) []byte { return []byte{recordHandshake, 3, 3, 0, 1, 0} }, "!type 22"},
			"one too large": {func(*half) []byte { return append([]byte{recordData, 3, 3, 0xff, 0xff}, make([]byte, 1<<16)...) }, "!type 23"},
		} {
			a, b := pair()
			plain, _, err := b.read(c.make(&a.out))
			got := string(plain)
			if err != nil {
				got = "!" + err.Error()
			}
			if want, fails := strings.CutPrefix(c.want, "!"); got != c.want && !(fails && err != nil && strings.Contains(got, want)) {
				t.Errorf("suite %#x, %s: %q, want %q", suite, name, got, c.want)
			}
		}
	}
}

// TestReadAhead: a server that sends data right behind its handshake, in the same piece, loses none of it.
func TestReadAhead(t *testing.T) {
	const data = "data behind a handshake"
	for cut := 1; cut < 12; cut++ {
		one, other := net.Pipe()
		records := []byte{recordHandshake, 3, 3, 0, 3, 1, 2, 3, recordData, 3, 3, 0, 0, recordData, 3, 3, 0, 2, 8, 9}
		go func() {
			_, _ = other.Write(append(records[:len(records):len(records)], data...)) // the reader takes it all
		}()
		in := &ahead{Conn: one, buf: new([aheadSize]byte)}
		var got []byte
		for len(got) < len(records) {
			b := make([]byte, cut)
			n, err := in.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, b[:n]...)
		}
		if !bytes.Equal(got, records) || string(in.buf[in.from:in.to]) != data {
			t.Errorf("reads of %d bytes: %v, and %q stays", cut, got, in.buf[in.from:in.to])
		}
		// A reader that takes as much as it can get is given no more than what is left of a record.
		in = &ahead{Conn: one, buf: in.buf, to: copy(in.buf[:], append(records[:len(records):len(records)], data...))}
		for _, want := range []int{5, 3, 5, 5, 2} {
			if n, err := in.Read(make([]byte, 100)); n != want || err != nil {
				t.Fatalf("%d bytes, %v, want %d", n, err, want)
			}
		}
	}
}
