package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// session is one connection with its one stream, from the preface on. Its proxy's goroutine owns it.
type session struct {
	sim     *sim
	conn    net.Conn        // the socket, or a tls.Conn
	records *records        // nil: conn carries plain HTTP/2, or is a tls.Conn
	socket  syscall.RawConn // of conn, if that is the socket
	addr    string
	dialed  time.Time

	small [256]byte // the buffer of an idle proxy
	large []byte    // from a pool; nil: not in use
	raw   []byte    // read but not decrypted, part of small or large
	buf   []byte    // decrypted but not processed, part of the same buffer
	more  bool      // the last read filled its buffer

	arrived time.Time // of the last read

	parser parser
	msg    response
	header []byte // incomplete HEADERS and CONTINUATION frames

	out *output

	window      int // bytes that the server may still send on the stream
	taken       int // bytes received since the last WINDOW_UPDATE
	sendConn    int // bytes that the server permits on the connection
	sendStream  int
	initialSend int // the server's SETTINGS_INITIAL_WINDOW_SIZE
	maxFrame    int
	queue       [][]byte // parts of messages that wait for a window
	let         bool     // connection of a move: the subscription to the owner was sent with the node, and admitted
	ping        bool     // a ping follows the queue
	pong        bool     // the server has answered that ping
}

// Errors that end a session.
var (
	errQuit = errors.New("ended by the fleet")
)

// status is the gRPC status with which a server ended a stream.
type status struct {
	code    string
	message string
}

func (s status) Error() string { return fmt.Sprintf("status %s: %s", s.code, s.message) }

const streamID = 1 // the id of the only stream

func newSession(s *sim, conn net.Conn, addr string) *session {
	c := &session{sim: s, conn: conn, addr: addr, window: s.fleet.cfg.Window, sendConn: 65535, sendStream: 65535,
		initialSend: 65535, maxFrame: 16384, parser: parser{rooms: &s.rooms, sotw: s.sotw}}
	if socket, ok := conn.(syscall.Conn); ok {
		c.socket, _ = socket.SyscallConn() // fails if it is closed; then the next read reports that
	}
	return c
}

// frames returns the framer for output; flush writes it.
func (c *session) frames() *http2.Framer {
	if c.out == nil {
		c.out = outputs.Get().(*output)
		c.out.buf.Reset()
	}
	return c.out.framer
}

func (c *session) flush() error {
	if c.out == nil {
		return nil
	}
	var to io.Writer = c.conn
	if c.records != nil {
		to = c.records
	}
	n, err := to.Write(c.out.buf.Bytes())
	c.sim.fleet.count.socketOut.Add(uint64(n))
	outputs.Put(c.out)
	c.out = nil
	return err
}

// preface writes the HTTP/2 preface and settings.
func (c *session) preface() {
	f := c.frames()
	c.out.buf.WriteString(http2.ClientPreface)
	window := c.sim.fleet.cfg.Window
	// These writes go to memory and cannot fail.
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(window)},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	if window > 65535 {
		_ = f.WriteWindowUpdate(0, uint32(window-65535))
	}
}

// The two forms of the protocol (envoy/service/discovery/v3/ads.proto).
const (
	deltaPath = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	sotwPath  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
)

// open opens the stream with its metadata.
func (c *session) open(extra [][2]string) error {
	scheme := "http"
	if c.sim.fleet.cfg.TLS != nil {
		scheme = "https"
	}
	path := deltaPath
	if c.sim.sotw {
		path = sotwPath
	}
	fields := append([][2]string{
		{":method", "POST"}, {":scheme", scheme}, {":path", path}, {":authority", cmp.Or(c.sim.fleet.cfg.Authority, c.addr)},
		{"content-type", "application/grpc"}, {"user-agent", "navarch-load"}, {"te", "trailers"},
	}, extra...)
	block := &blockWriter{}
	enc := hpack.NewEncoder(block)
	enc.SetMaxDynamicTableSize(0)
	for _, kv := range fields {
		if err := enc.WriteField(hpack.HeaderField{Name: kv[0], Value: kv[1], Sensitive: kv[0] == "authorization"}); err != nil {
			return err
		}
	}
	f, rest := c.frames(), block.b
	n := min(len(rest), c.maxFrame)
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: rest[:n], EndHeaders: n == len(rest)})
	for rest = rest[n:]; len(rest) > 0; rest = rest[n:] {
		n = min(len(rest), c.maxFrame)
		_ = f.WriteContinuation(streamID, n == len(rest), rest[:n])
	}
	return nil
}

type blockWriter struct{ b []byte }

func (w *blockWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// send queues parts of messages, prefixes included, and moves them to the output as the windows permit; flush writes
// them. Parts are not copied until then.
func (c *session) send(b []byte, more ...[]byte) {
	c.queue = append(slices.Grow(c.queue, 1+len(more)), b)
	for _, piece := range more {
		if len(piece) > 0 {
			c.queue = append(c.queue, piece)
		}
	}
	c.drain()
}

// drain moves data from the queue into DATA frames of maximum length, as the windows permit.
func (c *session) drain() {
	for len(c.queue) > 0 {
		limit, n := min(c.maxFrame, c.sendConn, c.sendStream), 0
		if limit <= 0 {
			return
		}
		for _, b := range c.queue {
			if n += len(b); n >= limit {
				n = limit
				break
			}
		}
		c.frames()
		if c.data(n); c.out.buf.Len() >= readSize {
			_ = c.flush() // the next read reports a broken connection
		}
	}
	c.queue = nil
	c.probe()
}

// data writes one frame with the next n bytes of the queue.
func (c *session) data(n int) {
	c.sendConn -= n
	c.sendStream -= n
	to := &c.out.buf
	to.Write([]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(http2.FrameData), 0, 0, 0, 0, streamID})
	for len(c.queue) > 0 {
		part := min(n, len(c.queue[0]))
		to.Write(c.queue[0][:part])
		n -= part
		if c.queue[0] = c.queue[0][part:]; len(c.queue[0]) > 0 {
			return
		}
		c.queue = c.queue[1:]
	}
}

// probe queues a ping behind all messages: the answer confirms that the requests have arrived.
func (c *session) probe() {
	if c.ping && len(c.queue) == 0 {
		c.ping = false
		_ = c.frames().WritePing(false, [8]byte{})
	}
}

// next processes one frame.
func (c *session) next() error {
	h, err := http2.ReadFrameHeader(c)
	if err != nil {
		return err
	}
	if h.Length > 16384 {
		return c.framing("a frame of %d bytes: the limit is 16384", h.Length)
	}
	if h.Type == http2.FrameData {
		return c.takeData(h)
	}
	return c.control(h)
}

// takeData passes DATA to the parser as it arrives.
func (c *session) takeData(h http2.FrameHeader) error {
	if h.StreamID != streamID {
		return c.framing("DATA on stream %d", h.StreamID)
	}
	left, pad := int(h.Length), 0
	if c.window -= left; c.window < 0 {
		return c.framing("%d bytes more than the flow-control window", -c.window)
	}
	if h.Flags.Has(http2.FlagDataPadded) {
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if pad = int(b[0]); pad >= left {
			return c.framing("padding of %d bytes in %d", pad, left)
		}
		left -= 1 + pad
	}
	for left > 0 {
		if len(c.buf) == 0 {
			if err := c.fill(); err != nil {
				return err
			}
		}
		n := min(left, len(c.buf))
		piece := c.buf[:n]
		c.buf = c.buf[n:]
		left -= n
		if err := c.parser.parse(piece, c); err != nil {
			if !errors.Is(err, errQuit) {
				c.sim.violation(NotReadable, nil, err.Error())
			}
			return err
		}
	}
	if _, err := io.CopyN(io.Discard, c, int64(pad)); err != nil {
		return err
	}
	c.credit(int(h.Length))
	return nil
}

// credit returns flow-control windows, half a window at a time.
func (c *session) credit(n int) {
	if c.taken += n; c.taken < c.sim.fleet.cfg.Window/2 || c.sim.shape.HoldWindow && c.sim.joined {
		return
	}
	f := c.frames()
	_ = f.WriteWindowUpdate(0, uint32(c.taken))
	_ = f.WriteWindowUpdate(streamID, uint32(c.taken))
	c.window += c.taken
	c.taken = 0
}

// close ends the connection, optionally with RST.
func (c *session) close(reset bool) {
	if t, ok := c.conn.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
	} else if c.records != nil {
		c.records.end()
	}
	_ = c.conn.Close()
	c.parser.drop()
	giveRead(c.large)
	c.large, c.raw, c.buf = nil, nil, nil
	if c.out != nil {
		outputs.Put(c.out)
		c.out = nil
	}
}
