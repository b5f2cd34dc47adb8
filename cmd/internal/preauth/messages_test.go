package preauth

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip" // registers itself, as it does in navarchd: the exporter of spans has it
	"google.golang.org/protobuf/encoding/protowire"
)

// A call ends when its message announces more bytes than its method permits, before the bytes arrive, and when its
// first message is late, whether gRPC or the handler reads the request. Later messages have no time limit.
// Promise: security-limits.md#streams-connections-and-messages
func TestMessagesOfCalls(t *testing.T) {
	const canceled = "1"
	good := hpack.HeaderField{Name: "authorization", Value: "good"}
	limit := func(method string) int { return map[string]int{checked: 100, anybody: 100}[method] }
	w := start(t, Limits{Message: limit, First: patience})
	c := w.http2("127.0.0.1")
	for _, method := range []string{checked, anybody} {
		stream := c.call(method, good)
		_ = c.WriteData(stream, false, []byte{0, 0, 0, 0, 101})
		if got := c.answer(stream); got != canceled {
			t.Errorf("%s: a message that says that it has 101 bytes: %s", method, got)
		}
	}
	if err := ask(t.Context(), w.client("127.0.0.1", false), "good", 90); err != nil {
		t.Errorf("a message of less: %v", err)
	}
	w = start(t, Limits{Message: limit, First: 100 * time.Millisecond})
	c = w.http2("127.0.0.1")
	for _, method := range []string{checked, anybody} {
		stream := c.call(method, good)
		_ = c.WriteData(stream, false, []byte{0, 0, 0, 0, 90, 1, 2, 3})
		if got := c.answer(stream); got != canceled {
			t.Errorf("%s: a message that does not end: %s", method, got)
		}
	}
	stream, late := c.call(checked, good), uint32(0)
	_ = c.WriteData(stream, false, make([]byte, 5))
	late = c.call(checked, good)
	if got := c.answer(late); got != canceled { // after First
		t.Errorf("no message: %s", got)
	}
	_ = c.WriteData(stream, true, make([]byte, 5))
	if got := c.answer(stream); got != "0" {
		t.Errorf("a second message after that time: %s", got)
	}
}

// Messages of clients are not decompressed, with a credential or without one, and responses are not compressed. A
// compressed message ends the connection, and a client that announces compression without using it gets uncompressed
// responses.
// Promise: security-connections.md#bytes-headers-and-messages
func TestNothingIsCompressed(t *testing.T) {
	w := start(t, Limits{})
	packed := hpack.HeaderField{Name: "grpc-encoding", Value: gzip.Name}
	good := hpack.HeaderField{Name: "authorization", Value: "good"}
	var bomb bytes.Buffer // of a megabyte
	zip, err := encoding.GetCompressor(gzip.Name).Compress(&bomb)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zip.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), make([]byte, 1<<20))); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{checked, anybody} {
		c := w.http2("127.0.0.1")
		stream := c.call(method, packed, good)
		_ = c.WriteData(stream, true, append(binary.BigEndian.AppendUint32([]byte{1}, uint32(bomb.Len())), bomb.Bytes()...))
		if got := c.answer(stream); got != "the connection ended" {
			t.Errorf("%s: a compressed message: %s", method, got)
		}
	}
	c := w.http2("127.0.0.1")
	stream := c.call(checked, packed, good)
	_ = c.WriteData(stream, true, protowire.AppendBytes(protowire.AppendTag([]byte{0, 0, 0, 0, 102}, 1, protowire.BytesType), make([]byte, 100)))
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if data, is := f.(*http2.DataFrame); is {
			if got := data.Data(); len(got) != 107 || got[0] != 0 {
				t.Errorf("the answer has %d bytes, and the flag %d", len(got), got[0])
			}
			break
		}
	}
}

// A client without a credential sends the maximum in header lists that are longer than gRPC accepts. It has begun no
// call whose credential is being verified, so its connection and memory are released at once.
func TestBytesWithoutACall(t *testing.T) {
	w := start(t, Limits{Credential: 24 * time.Hour}) // a quarter of it to verify a credential
	c := w.http2("127.0.0.2")
	for range 2 {
		// The call fails if the connection has ended.
		_ = c.call(checked, slices.Repeat([]hpack.HeaderField{{Name: "x", Value: strings.Repeat("~", 1<<10), Sensitive: true}}, 33)...)
	}
	w.ended("lists of headers", c.conn)
}

// counting is a holder that counts what frames cost, and has what follows wait once that is too much.
type counting struct {
	mu          sync.Mutex
	units, most int
	waited      bool
	wait        time.Duration
}

func (*counting) Hold(int) {}
func (*counting) Leave()   {}

func (c *counting) Work(units int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.units += units; c.units < c.most || c.waited {
		return 0
	}
	c.waited = true
	return c.wait
}

// The cost of a connection's calls and frames is counted for its holder, also for calls that are reset at once. When
// the holder requests it, further bytes stay unread for a while.
// Promise: security-limits.md#streams-connections-and-messages
func TestFramesOfAHolder(t *testing.T) {
	w, h := start(t, Limits{}), &counting{most: 100 * 50, wait: time.Second}
	w.assign = func(func()) (Holder, error) { return h, nil }
	c := w.http2("127.0.0.1", w.cert)
	began := time.Now()
	for range 100 {
		_ = c.WriteRSTStream(c.call(checked), http2.ErrCodeCancel)
	}
	for range 1000 {
		_ = c.WriteWindowUpdate(0, 1)
	}
	if got := c.answer(c.call(checked)); got != "16" { // without a token in it
		t.Errorf("a call after that: %s", got)
	}
	if took := time.Since(began); !h.waited || took < h.wait {
		t.Errorf("it was read for %v", took)
	}
	if h.units < 100*50+1000 {
		t.Errorf("%d units were counted", h.units)
	}
}

// A connection has at most a hundred concurrent calls, also with a credential. A further call is refused, and one is
// accepted as soon as another has ended.
// Promise: security-limits.md#streams-connections-and-messages
func TestCallsAtOnceAreBounded(t *testing.T) {
	w := start(t, Limits{})
	good := hpack.HeaderField{Name: "authorization", Value: "good"}
	c := w.http2("127.0.0.1")
	first := c.call(checked, good)
	for w.limiter.ledger.Known() == 0 { // the others are not counted as calls without a credential
		time.Sleep(time.Millisecond)
	}
	for range 99 {
		c.call(checked, good)
	}
	const refused = "REFUSED_STREAM"
	if got := c.answer(c.call(checked, good)); got != refused {
		t.Errorf("the 101st call at once: %s", got)
	}
	_ = c.WriteData(first, true, nil)
	if got := c.answer(first); got != "0" {
		t.Errorf("the first call: %s", got)
	}
	one := c.call(checked, good)
	_ = c.WriteData(one, true, nil)
	if got := c.answer(one); got != "0" {
		t.Errorf("a call in its place: %s", got)
	}
}

// keeping is a holder that notes what its connection keeps of messages.
type keeping struct {
	counting
	changes chan int
}

func (k *keeping) Hold(change int) { k.changes <- change }

// A holder receives the number of bytes of its connection's incomplete messages from 64 KiB on, and again when they are
// complete.
// Promise: security-limits.md#limits-of-one-identity, security-limits.md#streams-connections-and-messages
func TestMessagesOfAHolder(t *testing.T) {
	w, h := start(t, Limits{}), &keeping{changes: make(chan int, 100)}
	w.assign = func(func()) (Holder, error) { return h, nil }
	c := w.http2("127.0.0.1", w.cert)
	stream := c.call(checked, hpack.HeaderField{Name: "authorization", Value: "good"})
	_ = c.WriteData(stream, false, append([]byte{0, 0, 0x10, 0, 0}, make([]byte, 16<<10-5)...)) // a megabyte will come
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, more := f.(*http2.WindowUpdateFrame); more && f.Header().StreamID == stream {
			break // gRPC makes room for all of it
		}
	}
	for range 4 {
		_ = c.WriteData(stream, false, make([]byte, 16<<10))
	}
	changes := func() int {
		select {
		case n := <-h.changes:
			return n
		case <-time.After(patience):
			return 0
		}
	}
	if n := changes(); n < 64<<10 || n > 80<<10 {
		t.Errorf("%d bytes", n)
	}
	_ = c.WriteRSTStream(stream, http2.ErrCodeCancel)
	if n := changes(); n > -64<<10 {
		t.Errorf("%d bytes when the call has ended", n)
	}
}
