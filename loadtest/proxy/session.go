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

// session is one connection with its one stream, from the preface on. It is owned by its proxy's goroutine.
type session struct {
	sim     *sim
	conn    net.Conn        // the socket; with TLS that the session does not speak itself, the tls.Conn
	records *records        // nil: conn carries HTTP/2 as it is
	socket  syscall.RawConn // of conn, where that is the socket
	addr    string
	dialed  time.Time

	small [256]byte // what an idle proxy waits with
	large []byte    // of a pool; nil: none
	raw   []byte    // read and not opened, of small or large
	buf   []byte    // opened and not taken, of the same
	more  bool      // the last read filled its buffer

	parser parser
	msg    response
	header []byte // of HEADERS and CONTINUATION frames, until they are complete

	out *output

	window      int // of the stream's answers: what the server may still send
	taken       int // bytes taken since the last WINDOW_UPDATE
	sendConn    int // what the server lets us send
	sendStream  int
	initialSend int // SETTINGS_INITIAL_WINDOW_SIZE of the server
	maxFrame    int
	queue       [][]byte // pieces of messages that wait for a window
	let         bool     // a move's: the owner was asked for, with the node, and has let it in
	ping        bool     // a ping is to follow what is in the queue
	pong        bool     // the server has answered it
}

// Errors that end a session.
var (
	errQuit = errors.New("ended by the fleet")
)

// status is the gRPC status that a server ended a stream with.
type status struct {
	code    string
	message string
}

func (s status) Error() string { return fmt.Sprintf("status %s: %s", s.code, s.message) }

const streamID = 1 // the id of the only one

func newSession(s *sim, conn net.Conn, addr string) *session {
	c := &session{sim: s, conn: conn, addr: addr, window: s.fleet.cfg.Window, sendConn: 65535, sendStream: 65535,
		initialSend: 65535, maxFrame: 16384, parser: parser{rooms: &s.rooms, sotw: s.sotw}}
	if socket, ok := conn.(syscall.Conn); ok {
		c.socket, _ = socket.SyscallConn() // fails where it is closed, and then reading says so
	}
	return c
}

// frames gives the framer of what is to be written; flush writes it.
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

// preface opens HTTP/2.
func (c *session) preface() {
	f := c.frames()
	c.out.buf.WriteString(http2.ClientPreface)
	window := c.sim.fleet.cfg.Window
	// Errors of these writes are impossible: they go to memory.
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

// send puts the pieces of messages (prefixes included) on the stream, as far as the windows let them; flush writes them.
// Pieces are not copied until then.
func (c *session) send(b []byte, more ...[]byte) {
	c.queue = append(slices.Grow(c.queue, 1+len(more)), b)
	for _, piece := range more {
		if len(piece) > 0 {
			c.queue = append(c.queue, piece)
		}
	}
	c.drain()
}

// drain moves what the windows let through from the queue into DATA frames, each as long as it may be.
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
			_ = c.flush() // the read that follows tells of a connection that is broken
		}
	}
	c.queue = nil
	c.probe()
}

// data writes one frame of the next n bytes of the queue.
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

// probe pings the server behind all that was sent: its answer says that the requests have come.
func (c *session) probe() {
	if c.ping && len(c.queue) == 0 {
		c.ping = false
		_ = c.frames().WritePing(false, [8]byte{})
	}
}

// next takes one frame.
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

// takeData hands DATA to the parser as it comes.
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

// credit gives windows back: a half at a time.
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

// close ends the connection; with a reset where that is asked for.
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
