package partial

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2"
)

// message returns a gRPC message that announces length bytes and has `have` of them.
func message(length, have int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), make([]byte, have)...)
}

// client writes frames.
type client struct {
	*http2.Framer
	bytes.Buffer
}

func newClient() *client {
	c := &client{}
	c.Framer = http2.NewFramer(&c.Buffer, nil)
	c.WriteString(http2.ClientPreface)
	_ = c.WriteSettings()
	return c
}

// read passes the client's bytes to m, in parts of at most this size.
func (c *client) read(m *Messages, part int) {
	for c.Len() > 0 {
		m.Read(c.Next(1 + rand.IntN(part)))
	}
}

// Held counts the bytes of incomplete messages, whatever the sizes of the reads and the padding, on several streams,
// until the messages end.
// Promise: security-limits.md#streams-connections-and-messages
func TestHeld(t *testing.T) {
	for _, part := range []int{1, 3, 100, 1 << 20} {
		m, c := &Messages{}, newClient()
		open := func(stream uint32) *Call {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{0x82}, EndHeaders: true})
			c.read(m, part)
			call := &Call{}
			m.Begin(call)
			return call
		}
		want := func(what string, n int) {
			t.Helper()
			if c.read(m, part); m.Held() != n {
				t.Fatalf("parts of %d bytes, %s: %d bytes are held, want %d", part, what, m.Held(), n)
			}
		}
		one, other := open(1), open(3)
		_ = c.WriteData(1, false, message(100, 100))
		want("a whole message", 0)
		_ = c.WriteData(1, false, message(0, 0))
		want("an empty message", 0)
		_ = c.WriteData(1, false, append(message(10, 10), message(1000, 7)...))
		want("the second of two began", 7)
		_ = c.WriteDataPadded(3, false, message(500, 50), make([]byte, 200))
		want("another stream, padded", 57)
		_ = c.WriteDataPadded(3, false, nil, make([]byte, 255))
		_ = c.WritePing(false, [8]byte{})
		_ = c.WriteData(5, false, message(1000, 900)) // no call: gRPC throws it away
		want("padding and frames that are no data", 57)
		_ = c.WriteData(1, false, make([]byte, 993))
		want("the first is complete", 50)
		_ = c.WriteRSTStream(3, http2.ErrCodeCancel)
		want("the client has reset the stream", 0)
		m.End(other)
		_ = c.WriteData(1, false, message(1<<20, 16<<10)[:3])
		want("a part of the prefix", 0)
		_ = c.WriteData(1, false, message(1<<20, 16<<10)[3:])
		want("the rest of it, and more", 16<<10)
		m.End(one)
		m.End(one)
		want("the call ended", 0)
	}
}

// A message that announces too many bytes is reported once its length was read. A complete message is reported once.
func TestLimitAndComplete(t *testing.T) {
	m, c := &Messages{}, newClient()
	large, complete := 0, 0
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
	c.read(m, 10)
	m.Begin(&Call{Limit: 100, TooLarge: func(n uint32) { large += int(n) }, Complete: func() { complete++ }})
	_ = c.WriteData(1, false, message(100, 99))
	if c.read(m, 10); large != 0 || complete != 0 {
		t.Errorf("%d, %d before it is complete", large, complete)
	}
	_ = c.WriteData(1, false, []byte{1})
	_ = c.WriteData(1, false, message(5, 5))
	if c.read(m, 10); large != 0 || complete != 1 {
		t.Errorf("%d, %d when it is complete", large, complete)
	}
	_ = c.WriteData(1, false, message(101, 0))
	if c.read(m, 10); large != 101 {
		t.Errorf("a message of 101 bytes: %d", large)
	}
}

// Changes are reported in steps, and when no bytes are held.
func TestChange(t *testing.T) {
	m, c := &Messages{}, newClient()
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
	c.read(m, 10)
	m.Begin(&Call{})
	for _, one := range []struct{ bytes, want int }{{90, 0}, {20, 110}, {50, 0}, {60, 110}, {780, -220}} {
		b := make([]byte, one.bytes)
		if one.bytes == 90 {
			b = message(1000, 90)
		}
		_ = c.WriteData(1, false, b)
		if c.read(m, 10); m.Change(100) != one.want {
			t.Errorf("%d bytes more: not %d", one.bytes, one.want)
		}
	}
}

// Lists of headers are counted as they begin, and their bytes as frames announce them.
func TestLists(t *testing.T) {
	m, c := &Messages{}, newClient()
	want := func(what string, begun, bytes int) {
		t.Helper()
		c.read(m, 10)
		if n, size := m.Lists(); n != begun || size != bytes {
			t.Errorf("%s: %d of %d bytes, want %d of %d", what, n, size, begun, bytes)
		}
	}
	want("none", 0, 0)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 100)})
	c.Truncate(c.Len() - 100)
	want("announced", 1, 100)
	_, _ = c.Write(make([]byte, 100))
	_ = c.WriteContinuation(1, true, make([]byte, 20))
	_ = c.WriteData(1, false, make([]byte, 1000))
	want("continued", 1, 120)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: make([]byte, 7), EndHeaders: true})
	want("the next", 2, 7)
}

// Each frame costs one unit of work; each begun call costs many, also one that is reset at once, and its headers cost
// by their length. Reported work does not count again.
// Promise: security-limits.md#streams-connections-and-messages
func TestWork(t *testing.T) {
	m, c := &Messages{}, newClient()
	if c.read(m, 10); m.Work(2) != 0 || m.Work(1) != 1 || m.Work(1) != 0 { // SETTINGS
		t.Error("the first frame is not one")
	}
	for i := range uint32(10) {
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: make([]byte, 200), EndHeaders: false})
		_ = c.WriteContinuation(2*i+1, true, make([]byte, 300))
		_ = c.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		_ = c.WriteWindowUpdate(0, 1)
	}
	c.read(m, 10)
	if got, want := m.Work(1), 10*(4+callWork+500/headerWork); got != want {
		t.Errorf("%d units, want %d", got, want)
	}
}
