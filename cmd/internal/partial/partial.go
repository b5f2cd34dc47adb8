// Package partial observes the bytes that a gRPC client sends on an HTTP/2 connection, and counts the bytes of
// incomplete messages. gRPC buffers an incomplete message until it is complete, and does not report the number of
// buffered bytes.
//
// Owns: the state of the frames and messages of one connection.
// Reads: the client's bytes.
// Never: keeps or changes any of the bytes; decides on limits.
package partial

import (
	"encoding/binary"
	"slices"
	"sync"
)

// Messages counts the messages of one connection. Read must receive the client's bytes in order, from the first byte,
// and before gRPC receives them. gRPC must read one frame after the other (grpc.ReadBufferSize(0)). So when gRPC begins
// a call, the HEADERS frame of the call is the one that was read last. The zero Messages is ready for use. Safe for
// concurrent use.
type Messages struct {
	mu       sync.Mutex
	preface  uint8   // bytes of the connection preface that were read
	header   [9]byte // of a frame
	have     uint8   // bytes of header that were read
	left     uint32  // bytes of the frame's payload that are still to come
	padding  uint32  // bytes of padding at the end of the payload
	padded   bool    // the next byte is the length of the padding
	of       *Call   // the call that the frame belongs to; nil: no counted call
	opened   uint32  // stream of the HEADERS frame that was read last
	packed   bool    // a message of a counted call was marked as compressed
	lists    int     // header lists that were begun
	list     int     // bytes of the frames of the last header list
	calls    []*Call // the counted calls; there are few
	frames   int     // frames that were begun
	held     int     // bytes of incomplete messages
	reported int     // value of held that Change reported last
	work     int     // cost that Work has not reported yet
}

// Call is one call of the connection. Its messages are counted from Begin until End, or until the client resets the
// call's stream. The exported fields must be set before Begin and not changed afterwards.
//
// Read calls TooLarge and Complete, each at most once. Both may be nil, and must not call methods of Messages.
type Call struct {
	Limit int // maximum length of a message in bytes; 0: no limit
	// TooLarge is called with the length of the first message that announces a length above Limit. The message is not
	// refused, and its bytes count in Held.
	TooLarge func(length uint32)
	Complete func() // called when the first message is complete

	stream uint32
	prefix [5]byte // of a gRPC message: a compression flag and the length of the message
	have   uint8   // bytes of prefix that were read
	left   uint32  // bytes of the message that are still to come
	held   int     // bytes of the message that were read
}

// The server's cost of handling frames, in units of about a microsecond. Each frame costs 1, and each HEADERS frame
// costs callWork in addition. Each headerWork bytes of headers, which the server decodes and keeps, cost 1 more.
const callWork, headerWork = 50, 100

// Constants of HTTP/2 (RFC 9113, sections 3.4, 4.1 and 6).
const (
	prefaceSize = 24

	frameData, frameHeaders, frameReset, frameContinuation = 0, 1, 3, 9
	flagPadded                                             = 8
)

// Read parses b, the next bytes that the client sent. They may begin and end within a frame. Read does not keep b.
func (m *Messages) Read(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.preface < prefaceSize {
		n := min(len(b), prefaceSize-int(m.preface))
		m.preface += uint8(n)
		b = b[n:]
	}
	for len(b) > 0 {
		if m.left > 0 {
			n := min(len(b), int(m.left))
			m.payload(b[:n])
			b = b[n:]
			continue
		}
		n := copy(m.header[m.have:], b)
		b = b[n:]
		if m.have += uint8(n); int(m.have) == len(m.header) {
			m.have = 0
			m.frame()
		}
	}
}

// frame processes the header of the current frame, once it is complete.
func (m *Messages) frame() {
	m.frames++
	m.work++
	m.left = uint32(m.header[0])<<16 | uint32(m.header[1])<<8 | uint32(m.header[2])
	stream := binary.BigEndian.Uint32(m.header[5:]) &^ (1 << 31)
	m.padding, m.padded, m.of = 0, false, nil
	switch m.header[3] {
	case frameData:
		m.padded = m.header[4]&flagPadded != 0
		if i := m.find(stream); i >= 0 {
			m.of = m.calls[i]
		}
	case frameHeaders:
		m.opened = stream
		m.lists++
		m.list = int(m.left)
		m.work += callWork + int(m.left)/headerWork
	case frameContinuation:
		m.list += int(m.left)
		m.work += int(m.left) / headerWork
	case frameReset:
		m.forget(stream)
	}
}

// payload processes b, a part of the current frame's payload.
func (m *Messages) payload(b []byte) {
	m.left -= uint32(len(b))
	if m.of == nil {
		return
	}
	if m.padded {
		m.padded = false
		m.padding = min(uint32(b[0]), m.left+uint32(len(b))-1)
		b = b[1:]
	}
	if over := int(m.padding) - int(m.left); over > 0 { // some of b is padding
		b = b[:len(b)-min(over, len(b))]
	}
	for len(b) > 0 && m.of != nil {
		b = b[m.take(m.of, b):]
	}
}

// take counts bytes as prefix or as body of a call's current message, and returns the number of counted bytes.
func (m *Messages) take(c *Call, b []byte) (n int) {
	if int(c.have) < len(c.prefix) {
		n = copy(c.prefix[c.have:], b)
		if c.have += uint8(n); int(c.have) < len(c.prefix) {
			return n
		}
		c.left = binary.BigEndian.Uint32(c.prefix[1:])
		m.packed = m.packed || c.prefix[0] != 0
		if c.Limit > 0 && int64(c.left) > int64(c.Limit) && c.TooLarge != nil {
			c.TooLarge(c.left)
			c.TooLarge = nil
		}
	} else {
		n = int(min(uint64(len(b)), uint64(c.left)))
		c.left -= uint32(n)
		c.held += n
		m.held += n
	}
	if c.left == 0 {
		m.held -= c.held
		c.held, c.have = 0, 0
		if c.Complete != nil {
			c.Complete()
			c.Complete = nil
		}
	}
	return n
}

// Begin starts to count the messages of c, the call whose HEADERS frame was read last.
func (m *Messages) Begin(c *Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.stream = m.opened
	m.calls = append(m.calls, c)
}

// End stops counting the messages of c, and subtracts the bytes of its incomplete message from Held. A second End for c
// does nothing.
func (m *Messages) End(c *Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(c.stream)
}

func (m *Messages) find(stream uint32) int {
	return slices.IndexFunc(m.calls, func(c *Call) bool { return c.stream == stream })
}

func (m *Messages) forget(stream uint32) {
	i := m.find(stream)
	if i < 0 {
		return
	}
	c := m.calls[i]
	m.calls = slices.Delete(m.calls, i, i+1)
	m.held -= c.held
	if m.of == c {
		m.of = nil
	}
}

// Frames returns the number of frames that the client has begun.
func (m *Messages) Frames() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frames
}

// Lists returns the number of header lists that the client has begun, and the encoded size of the last list in bytes.
// The size includes bytes that a frame header has announced, even if they have not arrived.
func (m *Messages) Lists() (begun, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists, m.list
}

// Compressed reports whether any message of a counted call was marked as compressed. Ended calls count too.
func (m *Messages) Compressed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.packed
}

// Held returns how many bytes of incomplete messages have arrived, for all counted calls. The five-byte prefixes of
// messages do not count.
func (m *Messages) Held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// Change returns the number of bytes by which Held has grown since the last report. The number is negative if Held has
// shrunk. Each call of Change is a report, with one exception. If Held is not 0 and has changed by less than step
// bytes, Change returns 0, and the call is not a report.
func (m *Messages) Change(step int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	change := m.held - m.reported
	if max(change, -change) < step && m.held > 0 {
		return 0
	}
	m.reported = m.held
	return change
}

// Work returns the cost of the frames that the client has begun since Work last returned a cost above 0. A unit is
// about a microsecond of the server's work. If the cost is below step, Work returns 0 and keeps the cost for later
// calls.
func (m *Messages) Work(step int) (work int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.work >= step {
		work, m.work = m.work, 0
	}
	return work
}
