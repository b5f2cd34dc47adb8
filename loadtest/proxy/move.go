package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

// A move follows navarch-agent. It begins at a random moment after the proxy has learned its owner. The old stream
// continues while the proxy connects to the owner and subscribes to the owner resource, whose answer means admission.
// After admission, and once no message is in flight, the new stream claims the held resources, and the old connection
// is closed.

// admissionTime is the longest wait for admission; pings get no answer meanwhile.
const admissionTime = 45 * time.Second

var (
	errMoves   = errors.New("the proxy goes on with another connection")
	errRefused = errors.New("the owner does not let it in")
	errGone    = errors.New("the owner has let it in, and hung up")
)

// bound begins a move to the owner, unless one to that address is under way.
func (s *sim) bound(address string) {
	if s.owner = address; s.moveTo == address {
		return
	}
	s.turnBack()
	s.moveTo = address
	from := s.session
	s.after(rand.N(s.fleet.cfg.MoveWithin), func() {
		if s.session == from && s.moveTo == address {
			s.connectAhead(address)
		}
	})
}

// connectAhead requests admission at the owner while the current stream continues.
func (s *sim) connectAhead(address string) {
	node, err := encodeNode(s.id, &s.fleet.cfg)
	if err != nil {
		return // the current stream has learned the address
	}
	from, header := s.session, s.header()
	s.fleet.wg.Go(func() {
		c, err := s.connectTo(address)
		if err == nil {
			err = c.openAhead(header, request{node: node, url: ownerURL, subscribe: []string{ownerID}})
		}
		if err != nil && c != nil {
			_ = c.conn.Close()
			c = nil
		}
		if !s.post(func() { s.arrived(from, address, c, err) }) && c != nil {
			_ = c.conn.Close()
		}
	})
}

// arrived receives the admitted connection, or the error because of which the proxy stays.
func (s *sim) arrived(from *session, address string, c *session, err error) {
	switch {
	case s.session != from || s.moveTo != address: // the proxy is elsewhere, or has learned another owner
		if c != nil {
			_ = c.conn.Close()
		}
	case err != nil:
		s.stay(err)
	default:
		s.coming = c
	}
}

// stay ends a failed move.
func (s *sim) stay(err error) {
	s.turnBack()
	s.owner = ""
	s.fleet.count.end("move", err.Error())
}

// moves reports whether the proxy can switch to the admitted connection now: no message is in flight, so none is lost.
// If the owner has closed that connection, the proxy stays.
func (s *sim) moves() bool {
	if s.coming == nil || !s.still() {
		return false
	}
	if s.coming.ended() {
		s.stay(errGone)
		return false
	}
	return true
}

// ended reports whether the peer has closed the connection, by the state in the kernel.
func (c *session) ended() (ended bool) {
	if c.socket == nil {
		return false
	}
	err := c.socket.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		ended = err == nil && info.State != unix.BPF_TCP_ESTABLISHED
	})
	return ended || err != nil
}

// still reports whether no message is in flight.
func (s *sim) still() bool {
	c := s.session
	return s.warm() && c.parser.heads == 0 && len(c.buf) == 0 && len(c.raw) == 0 && len(c.queue) == 0
}

// move switches to the admitted connection.
func (s *sim) move() error {
	old := s.session
	s.session, s.coming, s.moveTo = s.coming, nil, ""
	s.stopWaiting()
	s.adopt(s.session.conn)
	s.fleet.count.streams.Add(1)
	s.fleet.count.moves.Add(1)
	s.begin()
	err := s.session.flush()
	old.close(false)
	return err
}

// turnBack abandons a move.
func (s *sim) turnBack() {
	s.moveTo = ""
	if s.coming != nil {
		s.coming.close(false)
		s.coming = nil
	}
}

// openAhead opens the stream with its first request and waits for the response headers, which mean admission. Bytes
// that have arrived by then are kept for the session's reader.
func (c *session) openAhead(header [][2]string, first request) error {
	c.preface()
	if err := c.open(header); err != nil {
		return err
	}
	c.let = true
	b := first.encode()
	count := &c.sim.fleet.count.types[agentType]
	count.requests.Add(1)
	count.bytesOut.Add(uint64(len(b)))
	c.send(b)
	if err := c.flush(); err != nil {
		return err
	}
	stop := context.AfterFunc(c.sim.fleet.ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = c.conn.SetReadDeadline(time.Now().Add(admissionTime)) // a closed connection fails at the read
	into := make([]byte, oneRecord)
	for {
		if err := c.openAll(); err != nil {
			return err
		}
		if in, err := letIn(c.buf); in || err != nil {
			_ = c.conn.SetReadDeadline(time.Time{})
			return err
		}
		n, err := c.conn.Read(into)
		if c.raw = append(c.raw, into[:n]...); err != nil {
			return fmt.Errorf("waiting for the owner's admission: %w", err)
		}
	}
}

// openAll decrypts every complete record.
func (c *session) openAll() error {
	for {
		plain, err := c.opened()
		if err != nil {
			return err
		}
		if len(plain) == 0 {
			return nil
		}
		c.buf = append(c.buf, plain...)
		c.sim.fleet.count.socketIn.Add(uint64(len(plain)))
	}
}

// letIn searches frames for the first one of a response.
func letIn(frames []byte) (bool, error) {
	const head = 9 // bytes of a frame's header (RFC 9113, 4.1)
	for len(frames) >= head {
		size := int(binary.BigEndian.Uint32(frames) >> 8)
		kind, flags := http2.FrameType(frames[3]), http2.Flags(frames[4])
		switch {
		case kind == http2.FrameRSTStream, kind == http2.FrameGoAway, kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersEndStream):
			return false, errRefused
		case kind == http2.FrameHeaders:
			return true, nil
		}
		frames = frames[min(len(frames), head+size):]
	}
	return false, nil
}
