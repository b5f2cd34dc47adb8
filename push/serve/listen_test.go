package serve

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/iotest"
)

// still is a listener with one connection.
type still struct {
	net.Listener
	conn net.Conn
}

func (s still) Accept() (net.Conn, error) { return s.conn, nil }

// countedReads is a connection that counts reads. A read returns the available bytes, as with the kernel.
type countedReads struct {
	net.Conn
	io.Reader
	calls int
}

func (c *countedReads) Read(b []byte) (int, error) {
	c.calls++
	return c.Reader.Read(b)
}

// accepted returns a connection as gRPC receives it, whose bytes are read from come.
func accepted(t *testing.T, come io.Reader) (net.Conn, *countedReads) {
	t.Helper()
	one, other := net.Pipe()
	t.Cleanup(func() { one.Close(); other.Close() })
	source := &countedReads{Conn: one, Reader: come}
	c, err := Listen(still{conn: source}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c, source
}

// The bytes read equal the bytes received, however they arrive and whatever the sizes of reads.
func TestConnReadsAhead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		sent := make([]byte, r.IntN(2000))
		for i := range sent {
			sent[i] = byte(r.IntN(256))
		}
		for i, source := range []io.Reader{bytes.NewReader(sent), iotest.OneByteReader(bytes.NewReader(sent)), iotest.HalfReader(bytes.NewReader(sent))} {
			c, _ := accepted(t, source)
			var got []byte
			for {
				b := make([]byte, r.IntN(2*aheadSize))
				n, err := c.Read(b)
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

// A frame that is read in two parts needs one system call if it is small, and two if it is large.
func TestSmallFramesTakeOneCall(t *testing.T) {
	const head = 9
	for name, c := range map[string]struct{ payload, calls int }{
		"an ACK": {110, 1}, "all that there is room for": {aheadSize - head, 1}, "more": {aheadSize - head + 1, 2}, "a full frame": {16 << 10, 2},
	} {
		conn, source := accepted(t, bytes.NewReader(make([]byte, head+c.payload)))
		for _, n := range []int{head, c.payload} {
			if _, err := io.ReadFull(conn, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		if source.calls != c.calls {
			t.Errorf("%s: %d calls, want %d", name, source.calls, c.calls)
		}
	}
}
