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
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// secured returns a session and a crypto/tls server after their handshake; the server's side sends the session's data.
func secured(t *testing.T, server *tls.Config, wrap ...func(net.Conn) net.Conn) (*session, *tls.Conn) {
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
	for _, w := range wrap {
		other = w(other)
	}
	c := alone(t, one)
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

// alone returns a session of a proxy that no goroutine runs.
func alone(t *testing.T, conn net.Conn) *session {
	t.Helper()
	f, err := New(Config{Addrs: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	s := newSim(f, 0, identities(1)[0])
	s.mu.Lock() // as the session's goroutine would
	return newSession(s, conn, "x")
}

// numbers returns bytes that encode their position.
func numbers(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d ", i)
	}
	return b.Bytes()[:n]
}

// TestRecords sends data of every length both ways, to and from crypto/tls: with the suites that a session speaks
// itself, and with a version that it leaves to crypto/tls.
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
			if last, err := io.ReadAll(server.NetConn()); len(last) < recordHead || err != nil {
				t.Errorf("the last word is %v, %v; want close_notify", last, err)
			}
		})
	}
}

// TestRecordsOfSuites configures both halves of a connection with the same secrets, and checks the handling of records
// that are cut, changed, repeated or of an unsupported type.
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

// TestReadAhead: no data is lost if a server sends it directly behind its handshake, in the same piece.
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
		// A reader with a large buffer gets only the rest of the current record.
		in = &ahead{Conn: one, buf: in.buf, to: copy(in.buf[:], append(records[:len(records):len(records)], data...))}
		for _, want := range []int{5, 3, 5, 5, 2} {
			if n, err := in.Read(make([]byte, 100)); n != want || err != nil {
				t.Fatalf("%d bytes, %v, want %d", n, err, want)
			}
		}
	}
}

// behind writes a record of its own behind the first piece.
type behind struct {
	net.Conn
	more []byte
}

func (b *behind) Write(p []byte) (int, error) {
	_, err := b.Conn.Write(append(p[:len(p):len(p)], b.more...))
	b.more = nil
	return len(p), err
}

// A server that sends data before the end of the handshake: the client keeps the data.
func TestDataBehindTheHandshake(t *testing.T) {
	words := []byte{recordData, 3, 3, 0, 2, 'h', 'i'}
	s, _ := secured(t, &tls.Config{}, func(c net.Conn) net.Conn { return &behind{c, words} })
	if s.records == nil || !bytes.Equal(s.raw, words) {
		t.Errorf("%v is kept, want %v", s.raw, words)
	}
}

// counted counts writes.
type counted struct {
	net.Conn
	calls, bytes int
}

func (c *counted) Write(p []byte) (int, error) {
	c.calls, c.bytes = c.calls+1, c.bytes+len(p)
	return len(p), nil
}

// TestRecordsShareCalls: four records of 16 KB are written with one system call.
func TestRecordsShareCalls(t *testing.T) {
	secret := bytes.Repeat([]byte{1}, 32)
	for n, calls := range map[int]int{1: 1, 4 * maxPlain: 1, 4*maxPlain + 1: 2, 20 * maxPlain: 5} {
		to := &counted{}
		r, err := newRecords(to, tls.TLS_AES_128_GCM_SHA256, secret, secret)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Write(make([]byte, n)); got != n || err != nil || to.calls != calls || to.bytes <= n {
			t.Errorf("%d bytes: %d, %v, in %d calls with %d bytes, want %d calls", n, got, err, to.calls, to.bytes, calls)
		}
	}
}

// TestReadBuffers checks the buffers of a waiting session: one record's buffer for the rest of a record, a large one
// while much data arrives, and otherwise only its own few bytes.
func TestReadBuffers(t *testing.T) {
	one, other := net.Pipe()
	defer other.Close()
	secret := bytes.Repeat([]byte{1}, 32)
	c := alone(t, one)
	var err error
	if c.records, err = newRecords(one, tls.TLS_AES_128_GCM_SHA256, secret, secret); err != nil {
		t.Fatal(err)
	}
	server, err := newRecords(other, tls.TLS_AES_128_GCM_SHA256, secret, secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what  string
		n     int // of data
		cut   int // bytes that come first; 0: all at once
		large int
	}{
		{"a little", 100, 0, 0}, {"a record in two pieces", 5000, 100, oneRecord}, {"a little again", 100, 0, 0},
		{"its head in pieces", 200, 3, 0}, {"a lot", 3 * maxPlain, 0, readSize}, {"the largest, in two pieces", maxPlain, 7, oneRecord}, {"a little at last", 1, 0, 0},
	} {
		want := numbers(step.n)
		var sealed []byte
		for rest := want; len(rest) > 0; rest = rest[min(maxPlain, len(rest)):] {
			sealed = server.out.seal(sealed, recordData, rest[:min(maxPlain, len(rest))])
		}
		go func() {
			_, _ = other.Write(sealed[:step.cut]) // they are read before the call returns
			_, _ = other.Write(sealed[step.cut:])
		}()
		got := make([]byte, step.n)
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %v", step.what, err)
		}
		if len(c.large) != step.large {
			t.Errorf("%s: a buffer of %d bytes, want %d", step.what, len(c.large), step.large)
		}
	}
}

// TestFramesAreFull: many small pieces fill DATA frames, in order, and wait at the end of the windows.
func TestFramesAreFull(t *testing.T) {
	c := alone(t, nil)
	want := numbers(40000)
	var pieces [][]byte
	for rest := want; len(rest) > 0; rest = rest[min(300, len(rest)):] {
		pieces = append(pieces, rest[:min(300, len(rest))], nil)
	}
	c.sendStream = 35000
	c.send(pieces[0], pieces[1:]...)
	frames := func() (sizes []int, data []byte) {
		r := http2.NewFramer(nil, &c.out.buf)
		for {
			f, err := r.ReadFrame()
			if err != nil {
				return sizes, data
			}
			d := f.(*http2.DataFrame)
			sizes, data = append(sizes, len(d.Data())), append(data, d.Data()...)
		}
	}
	sizes, data := frames()
	if fmt.Sprint(sizes) != "[16384 16384 2232]" || !bytes.Equal(data, want[:35000]) {
		t.Errorf("frames of %v bytes", sizes)
	}
	c.sendStream += 9000
	c.drain()
	if sizes, data := frames(); fmt.Sprint(sizes) != "[5000]" || !bytes.Equal(data, want[35000:]) || c.queue != nil || c.sendStream != 4000 || c.sendConn != 25535 {
		t.Errorf("frames of %v bytes, windows of %d and %d", sizes, c.sendStream, c.sendConn)
	}
}

// A response is read into a buffer that is allocated when it arrives, so that it needs one system call up to the size
// of a record; an idle proxy has no such buffer.
func TestAnswerIsReadWhole(t *testing.T) {
	s, server := secured(t, &tls.Config{})
	calls := 0
	s.socket = countedReads{s.socket, &calls}
	for _, n := range []int{1, 300, 5000, maxPlain} {
		if _, err := server.Write(numbers(n)); err != nil {
			t.Fatal(err)
		}
		calls = 0
		got := make([]byte, n)
		if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, numbers(n)) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if calls == 0 || len(s.large) != oneRecord {
			t.Errorf("%d bytes were read into a buffer of %d", n, len(s.large))
		}
		if s.room(); s.large != nil {
			t.Errorf("a buffer of %d bytes is kept", len(s.large))
		}
	}
}

// countedReads is a socket that counts the waits for readability.
type countedReads struct {
	syscall.RawConn
	n *int
}

func (c countedReads) Read(f func(uintptr) bool) error {
	*c.n++
	return c.RawConn.Read(f)
}
