package preauth

import (
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The number of bytes that must arrive next is known, in whatever pieces a client's records arrive.
func TestRecords(t *testing.T) {
	record12 := append([]byte{22, 3, 1, 0, 12}, make([]byte, 12)...)
	for name, c := range map[string]struct {
		pieces [][]byte
		want   []int
	}{
		"at once":               {[][]byte{record12}, []int{5}},
		"byte by byte":          {[][]byte{{22}, {3}, {1}, {0}, {12}, {9}}, []int{4, 3, 2, 1, 12, 11}},
		"the longest":           {[][]byte{{22, 3, 1, 255, 255}}, []int{65535}},
		"an empty one":          {[][]byte{{22, 3, 1, 0, 0}, {22, 3}}, []int{1, 3}},
		"one and part of a one": {[][]byte{append(record12[:len(record12):len(record12)], 20, 3, 3)}, []int{2}},
		"nothing":               {[][]byte{nil}, []int{5}},
	} {
		r := record{}
		for i, piece := range c.pieces {
			if got := r.read(piece); got != c.want[i] {
				t.Errorf("%s, piece %d: %d bytes are to come, want %d", name, i, got, c.want[i])
			}
		}
	}
}

// A connection does not wake its reader while it waits for its place, nor within a record of its handshake. Afterwards
// it does at any byte.
// Promise: security-connections.md#handshakes
func TestTricklesWakeNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	limiter := New(Limits{}, nil)
	s := &steps{Conn: server, of: limiter.conn(server), line: limiter.line}
	defer s.done()
	hello := append([]byte{22, 3, 1, 0, 200}, make([]byte, 200)...)
	read, sent := 0, 0
	for at, c := range []struct {
		until  int // number of bytes sent so far
		served bool
		wakes  bool
	}{{3, false, false}, {20, false, false}, {20, true, true}, {204, true, false}, {205, true, true}} {
		if c.served && s.of.least == leastWaiting {
			s.of.begin()
		}
		if _, err := client.Write(hello[sent:c.until]); err != nil {
			t.Fatal(err)
		}
		sent = c.until
		if got := readable(t, server, sent-read); got != c.wakes {
			t.Errorf("%d: %d bytes were sent: wakes %v", at, c.until, got)
		}
		if c.wakes {
			if n, err := s.Read(make([]byte, 1000)); n != sent-read || err != nil {
				t.Fatal(n, err)
			}
			read = sent
		}
	}
	s.done()
	if _, err := client.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if !readable(t, server, 1) {
		t.Error("one byte after the handshake wakes nobody")
	}
}

// readable waits until the kernel has that many bytes, and reports whether that wakes a reader.
func readable(t *testing.T, c net.Conn, bytes int) (yes bool) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		have := 0
		if err := raw.Control(func(fd uintptr) {
			have, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			_, _ = unix.Poll(polled, 0) // says nothing where it fails
			yes = polled[0].Revents&unix.POLLIN != 0
		}); err != nil {
			t.Fatal(err)
		}
		if have >= bytes || time.Now().After(until) {
			return yes
		}
	}
}
