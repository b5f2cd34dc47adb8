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

// A move is made as navarch-agent makes it: it begins at a random moment after the proxy was told of its owner; the old
// stream goes on while a connection is made and the owner is asked who the owner is, which is waiting for its admission; when the
// owner has let it in, and nothing is in flight, the new stream claims what is held and the old connection is closed.

// admissionTime is how long a proxy waits to be let in; it answers no pings there.
const admissionTime = 45 * time.Second

var (
	errMoves   = errors.New("the proxy goes on with another connection")
	errRefused = errors.New("the owner does not let it in")
	errGone    = errors.New("the owner has let it in, and hung up")
)

// bound begins a move to the owner that was told, unless it is on its way there.
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

// connectAhead asks the owner to let the proxy in while the proxy is served where it is.
func (s *sim) connectAhead(address string) {
	node, err := encodeNode(s.id, &s.fleet.cfg)
	if err != nil {
		return // the stream that there is has told of it
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

// arrived takes the connection that was let in, or the error why there is none: then the proxy stays.
func (s *sim) arrived(from *session, address string, c *session, err error) {
	switch {
	case s.session != from || s.moveTo != address: // it is elsewhere, or was told otherwise
		if c != nil {
			_ = c.conn.Close()
		}
	case err != nil:
		s.stay(err)
	default:
		s.coming = c
	}
}

// stay is the end of a move that has failed.
func (s *sim) stay(err error) {
	s.turnBack()
	s.owner = ""
	s.fleet.count.end("move", err.Error())
}

// moves says that the proxy is to go on with the connection that was let in: nothing is in flight, so that nothing is lost.
// Where the owner has hung up meanwhile, the proxy stays.
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

// ended says whether the other side has closed the connection, as the kernel knows before anybody reads.
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

// still says that nothing is in flight: a move would lose nothing.
func (s *sim) still() bool {
	c := s.session
	return s.warm() && c.parser.heads == 0 && len(c.buf) == 0 && len(c.raw) == 0 && len(c.queue) == 0
}

// move goes on with the connection that was let in.
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

// turnBack forgets a move that has not been made.
func (s *sim) turnBack() {
	s.moveTo = ""
	if s.coming != nil {
		s.coming.close(false)
		s.coming = nil
	}
}

// openAhead opens the stream with its first request, and waits until the server has let it in: it sends its headers then. What
// has come by then is kept for who reads the session next.
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
	_ = c.conn.SetReadDeadline(time.Now().Add(admissionTime)) // one that is closed fails at the read
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

// openAll opens every record that has come completely.
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

// letIn looks through frames for the first of an answer that begins.
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
