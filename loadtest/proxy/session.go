package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// session is one connection with its one stream, from the preface on. It is owned by its proxy's goroutine.
type session struct {
	sim  *sim
	conn net.Conn
	addr string

	small [256]byte // what an idle proxy waits with
	big   *[readSize]byte
	buf   []byte // read and not taken, of small or big
	more  bool   // the last read filled its buffer

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
	return &session{sim: s, conn: conn, addr: addr, window: s.fleet.cfg.Window, sendConn: 65535, sendStream: 65535,
		initialSend: 65535, maxFrame: 16384, parser: parser{rooms: &s.rooms, world: s.world}}
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
	n, err := c.conn.Write(c.out.buf.Bytes())
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
	worldPath = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
)

// open opens the stream with its metadata.
func (c *session) open(extra [][2]string) error {
	scheme := "http"
	if c.sim.fleet.cfg.TLS != nil {
		scheme = "https"
	}
	path := deltaPath
	if c.sim.world {
		path = worldPath
	}
	fields := append([][2]string{
		{":method", "POST"}, {":scheme", scheme}, {":path", path}, {":authority", first(c.sim.fleet.cfg.Authority, c.addr)},
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
	c.queue = append(append(c.queue, b), more...)
	c.drain()
}

// drain moves what the windows let through from the queue into DATA frames.
func (c *session) drain() {
	for len(c.queue) > 0 {
		b := c.queue[0]
		n := min(len(b), c.maxFrame, c.sendConn, c.sendStream)
		if n <= 0 && len(b) > 0 {
			return
		}
		if n > 0 {
			_ = c.frames().WriteData(streamID, false, b[:n])
			c.sendConn -= n
			c.sendStream -= n
		}
		if c.queue[0] = b[n:]; n == len(b) {
			c.queue = c.queue[1:]
		}
	}
	c.queue = nil
	c.probe()
}

// probe pings the server behind all that was sent: its answer says that the requests have come.
func (c *session) probe() {
	if c.ping && len(c.queue) == 0 {
		c.ping = false
		_ = c.frames().WritePing(false, [8]byte{})
	}
}

// Read gives what has come; it blocks where nothing has, and does meanwhile what others posted to the proxy. The
// proxy's mutex is held by the caller, and given away while it blocks.
func (c *session) Read(b []byte) (int, error) {
	if len(c.buf) == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.buf)
	c.buf = c.buf[n:]
	return n, nil
}

func (c *session) fill() error {
	if err := c.flush(); err != nil {
		return err
	}
	into := c.small[:]
	if c.more {
		if c.big == nil {
			c.big = reads.Get().(*[readSize]byte)
		}
		into = c.big[:]
	} else if c.big != nil {
		reads.Put(c.big)
		c.big = nil
	}
	for {
		if err := c.sim.work(); err != nil {
			return err
		}
		if err := c.flush(); err != nil { // what work wrote
			return err
		}
		limit := c.sim.allowance(len(into))
		if limit == 0 {
			c.sim.pause()
			continue
		}
		n, err := c.sim.block(func() (int, error) { return c.conn.Read(into[:limit]) })
		if n > 0 {
			c.sim.fleet.count.socketIn.Add(uint64(n))
			c.sim.consumed(n)
			c.buf, c.more = into[:n], n == len(into)
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
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
		if err := c.parser.feed(piece, c); err != nil {
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
	}
	_ = c.conn.Close()
	c.parser.drop()
	if c.big != nil {
		reads.Put(c.big)
		c.big = nil
	}
	if c.out != nil {
		outputs.Put(c.out)
		c.out = nil
	}
}
