package serving

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"

	"navarch.io/navarch/push/serve"
)

// counted is a connection that delivers the bytes of a reader. It counts reads; as a listener it returns itself.
type counted struct {
	net.Conn
	io.Reader
	calls int
}

func (c *counted) Read(b []byte) (int, error) {
	c.calls++
	return c.Reader.Read(b)
}

func (c *counted) Accept() (net.Conn, error) { return c, nil }
func (c *counted) Addr() net.Addr            { return c.LocalAddr() }

// The reader returns the bytes that arrived, for any sizes of writes and reads, and never parts of two records at once.
func TestRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var sent []byte
		ends := map[int]bool{}
		for range 1 + r.IntN(6) {
			n := r.IntN(40)
			sent = append(sent, 22, 3, 3, byte(n>>8), byte(n))
			ends[len(sent)] = true
			for range n {
				sent = append(sent, byte(r.IntN(256)))
			}
			ends[len(sent)] = true
		}
		for i, source := range []io.Reader{bytes.NewReader(sent), iotest.OneByteReader(bytes.NewReader(sent)), iotest.HalfReader(bytes.NewReader(sent)),
			iotest.DataErrReader(bytes.NewReader(sent))} {
			c := &records{Conn: &counted{Reader: source}}
			var got []byte
			for {
				b := make([]byte, 1+r.IntN(100))
				n, err := c.Read(b)
				for at := len(got) + 1; at < len(got)+n; at++ {
					if ends[at] {
						t.Fatalf("reader %d: %d bytes from %d on, across the boundary at %d", i, n, len(got), at)
					}
				}
				got = append(got, b[:n]...)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got, sent) {
				t.Fatalf("reader %d: got %x, want %x", i, got, sent)
			}
		}
	}
}

// A connection whose client has filled records retains a buffer for one record.
func TestSecureConnectionKeepsOneRecord(t *testing.T) {
	const n, size = 40, 256 << 10
	dir := t.TempDir()
	files := pairFiles{cert: filepath.Join(dir, "c"), key: filepath.Join(dir, "k")}
	writePair(t, files.cert, files.key)
	pair, err := files.pair()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	inner := Credentials(&tls.Config{Certificates: []tls.Certificate{*pair}, SessionTicketsDisabled: true, NextProtos: []string{"h2"}})
	var open []net.Conn
	connect := func() {
		one, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client := tls.Client(one, &tls.Config{InsecureSkipVerify: true, DynamicRecordSizingDisabled: true, NextProtos: []string{"h2"}})
		go func() { _, _ = client.Write(make([]byte, size)) }() // errors are visible in the read below
		other, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server, _, err := inner.ServerHandshake(other)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, server, size); err != nil {
			t.Fatal(err)
		}
		open = append(open, one, server)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools release their objects at the second collection
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	connect()
	before := heap()
	for range n {
		connect()
	}
	each := (int64(heap()) - int64(before)) / n
	for _, c := range open {
		c.Close()
	}
	t.Logf("%d bytes for each connection, both ends", each)
	if each > 32<<10 {
		t.Errorf("a connection keeps %d bytes", each)
	}
}

// On a connection of the server a small record needs one system call, and so does each of several large ones except the
// first.
func TestRecordsTakeOneCall(t *testing.T) {
	record := func(size int) []byte {
		return append([]byte{23, 3, 3, byte(size >> 8), byte(size)}, make([]byte, size)...)
	}
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	source := &counted{Conn: one}
	inner, err := serve.Listen(source).Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := &records{Conn: inner}
	read := func(sizes ...int) {
		var room [17 << 10]byte
		for _, size := range sizes {
			if _, err := io.ReadFull(c, room[:recordHead]); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < size; {
				n, err := c.Read(room[at:]) // crypto/tls offers more room than it needs
				if err != nil {
					t.Fatal(err)
				}
				at += n
			}
		}
	}
	const ack, large = 120, 16<<10 + 17
	for range 3 {
		source.Reader, source.calls = bytes.NewReader(record(ack)), 0
		if read(ack); source.calls != 1 {
			t.Errorf("an ACK took %d calls", source.calls)
		}
	}
	source.Reader, source.calls = bytes.NewReader(slices.Concat(record(large), record(large), record(large), record(large))), 0
	if read(large, large, large, large); source.calls != 5 {
		t.Errorf("four large records took %d calls", source.calls)
	}
}
