// Package partial observes the bytes that a gRPC client sends on an HTTP/2 connection, and counts how many belong to messages that are not
// complete yet: gRPC buffers these until they are, and reports it to nobody (issue 12, item 8).
//
// Owns: the state of the frames and messages of one connection.  Reads: the client's bytes, as they come.  Never: keeps or changes any
// of them; decides what is too much.
package partial

import (
	"encoding/binary"
	"slices"
	"sync"
)

// Messages are those of one connection. Bytes must be given to it before they are given to gRPC, and gRPC must read one frame after
// the other (grpc.ReadBufferSize(0)): the call that gRPC begins is that of the HEADERS frame which was read last. The zero Messages is
// ready for use, by any goroutine.
type Messages struct {
	mu       sync.Mutex
	preface  uint8   // bytes of the connection preface that have come
	header   [9]byte // of a frame
	have     uint8   // bytes of header that have come
	left     uint32  // bytes of the frame's payload that have not come
	padding  uint32  // of left, at its end
	padded   bool    // the next byte says how much padding there is
	of       *Call   // whose bytes the frame has; nil: of none that counts
	opened   uint32  // stream of the HEADERS frame that was read last
	packed   bool    // a message of a call that counts says that it is compressed
	lists    int     // of headers that were begun
	list     int     // bytes of the frames of the one that was begun last
	calls    []*Call // few
	frames   int     // that were begun
	held     int     // bytes of messages that are not complete
	reported int     // what Change has told of these
	work     int     // beyond what Work has told
}

// Call is one call of the connection.
type Call struct {
	// Limit is how many bytes a message of it may have; 0: no limit. TooLarge is called when one says that it has more, as soon as its
	// length has come, and Complete when its first message is complete; both once at most, and they must not call Messages. nil: nobody
	// is told.
	Limit    int
	TooLarge func(length uint32)
	Complete func()

	stream uint32
	prefix [5]byte // of a message of gRPC: whether it is compressed, and its length
	have   uint8   // bytes of prefix that have come
	left   uint32  // bytes of the message that have not
	held   int     // bytes of it that have
}

// What handling frames costs a server, each about a microsecond: one for each frame, callWork for each call that is begun, and one for headerWork bytes of its
// headers, which are decoded and kept.
const callWork, headerWork = 50, 100

// HTTP/2's (RFC 9113, sections 3.4, 4.1 and 6).
const (
	prefaceSize = 24

	frameData, frameHeaders, frameReset, frameContinuation = 0, 1, 3, 9
	flagPadded                                             = 8
)

// Read takes what the client has sent next.
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

// frame begins one, whose header is complete.
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

// payload takes some of the frame's.
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

// take gives a call what has come of its next message, and says how many bytes of b that is.
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

// Begin counts what comes of the call whose headers were read last.
func (m *Messages) Begin(c *Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.stream = m.opened
	m.calls = append(m.calls, c)
}

// End forgets a call: nothing of it is kept any more. It may be called again.
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

// Frames is how many frames the client has begun.
func (m *Messages) Frames() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frames
}

// Lists is how many lists of headers the client has begun, and how many bytes the frames of the last one have or have announced, as they are
// encoded.
func (m *Messages) Lists() (begun, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists, m.list
}

// Compressed says whether a message has begun that says that it is compressed.
func (m *Messages) Compressed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.packed
}

// Held is how many bytes have come of messages that are not complete.
func (m *Messages) Held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// Change is by how much Held has changed since it was told last, where that is step or more, or where nothing is held any more; else 0.
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

// Work is what frames that have come cost beyond what it told last, where that is step or more; else 0. A unit is about a microsecond.
func (m *Messages) Work(step int) (work int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.work >= step {
		work, m.work = m.work, 0
	}
	return work
}
