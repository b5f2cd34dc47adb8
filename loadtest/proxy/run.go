package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"navarch.io/navarch/push/xds"
)

// sim is one simulated proxy. Its goroutine owns all fields and holds mu, except while it waits; then others may read
// them.
type sim struct {
	fleet *Fleet
	index int
	id    Identity

	mu sync.Mutex
	envoy
	session *session
	rooms   rooms
	shape   Behaviour
	again   Reconnect // how the next stream is opened
	quit    bool
	drop    bool // this session must end
	joined  bool
	dialed  time.Time
	tries   int       // dials since the last stream with an answer
	lull    time.Time // a slow reader does not read before this time

	postMu sync.Mutex
	posted []func()
	ended  bool     // posted functions are no longer run
	conn   net.Conn // the connection whose read post interrupts
	wake   chan struct{}
	stale  []net.Conn // vanished connections, which stay open
}

func newSim(f *Fleet, index int, id Identity) *sim {
	s := &sim{fleet: f, index: index, id: id, wake: make(chan struct{}, 1)}
	s.rooms = rooms{free: f.rooms, wait: func(call func()) { _, _ = s.block(func() (int, error) { call(); return 0, nil }) }}
	if f.cfg.Behaviour != nil {
		s.shape = f.cfg.Behaviour(index, id)
	}
	s.init()
	return s
}

// run connects, serves the stream until it ends, and reconnects, until the proxy is removed.
func (s *sim) run(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.end()
	s.rest(wait)
	for !s.quit {
		s.drop = false
		err := s.connect()
		if err == nil {
			err = s.speak()
		}
		s.over(err)
		if s.quit {
			return
		}
		s.rest(s.backOff())
	}
}

// rest waits for d and runs posted functions.
func (s *sim) rest(d time.Duration) {
	for until := time.Now().Add(d); s.work() == nil || !s.quit; {
		left := time.Until(until)
		if left <= 0 || s.again.Now {
			return
		}
		s.sleep(left)
	}
}

// backOff returns Envoy's wait: random within an interval that doubles. The first wait after a working stream is within
// the first interval (reference: 60 Envoys that were cut at once returned within half a second).
func (s *sim) backOff() time.Duration {
	if s.again.Now {
		return 0
	}
	limit := min(s.fleet.cfg.BackOff<<min(s.tries, 10), s.fleet.cfg.MaxBackOff)
	return time.Duration(rand.Int64N(int64(limit) + 1))
}

// address returns the address of the next connection.
func (s *sim) address() string {
	if s.owner != "" && s.tries == 0 {
		return s.owner
	}
	addrs := s.fleet.cfg.Addrs
	s.dials++
	return addrs[(s.index+s.dials-1)%len(addrs)]
}

// connect opens a connection and its session.
func (s *sim) connect() error {
	c, err := s.dial(s.address())
	s.again.Now = false
	s.tries++
	if err != nil {
		return err
	}
	s.session = c
	s.adopt(c.conn)
	return nil
}

// adopt registers the connection whose read post interrupts.
func (s *sim) adopt(conn net.Conn) {
	s.postMu.Lock()
	defer s.postMu.Unlock()
	s.conn = conn
	if conn != nil && len(s.posted) > 0 {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// dial connects and releases mu meanwhile.
func (s *sim) dial(addr string) (*session, error) {
	s.mu.Unlock()
	c, err := s.connectTo(addr)
	s.mu.Lock()
	if err == nil {
		s.dialed = c.dialed
	}
	return c, err
}

// connectTo connects, including the TLS handshake. Any goroutine may call it.
func (s *sim) connectTo(addr string) (*session, error) {
	f := s.fleet
	select {
	case f.dialing <- struct{}{}:
		defer func() { <-f.dialing }()
	case <-f.ctx.Done():
		return nil, errQuit
	}
	f.count.dials.Add(1)
	began := time.Now()
	ctx, cancel := context.WithTimeout(f.ctx, 20*time.Second)
	defer cancel()
	d := net.Dialer{LocalAddr: source(addr, s.index/f.cfg.PerSource), KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c := newSession(s, conn, addr)
	c.dialed = began
	if f.cfg.TLS != nil {
		if err := c.handshake(ctx, f.cfg.TLS); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return c, nil
}

// source returns the local address of the n-th group of proxies; nil: the kernel chooses.
func source(addr string, n int) net.Addr {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	if host == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if err != nil || n == 0 || ip == nil || !ip.IsLoopback() || ip.To4() == nil {
		return nil
	}
	return &net.TCPAddr{IP: net.IPv4(127, byte(1+n>>16), byte(n>>8), byte(n))}
}

// speak opens the stream and reads until it ends.
func (s *sim) speak() error {
	c := s.session
	if s.shape.HalfOpen == AfterConnect {
		return s.silence()
	}
	c.preface()
	if s.shape.HalfOpen == AfterHandshake {
		return s.silence()
	}
	if err := s.handshake(c); err != nil {
		return err
	}
	if s.shape.HalfOpen == AfterHeaders {
		return s.silence()
	}
	s.fleet.count.streams.Add(1)
	s.fleet.count.connected.Add(1)
	s.begin()
	for {
		err := errMoves
		if !s.moves() {
			err = s.session.next()
		}
		if errors.Is(err, errMoves) { // possibly in the middle of a frame: the session cannot continue
			err = s.move()
		}
		if err != nil {
			return err
		}
	}
}

// handshake opens the stream with the metadata of this proxy.
func (s *sim) handshake(c *session) error { return c.open(s.header()) }

// header returns the metadata of this proxy's stream.
func (s *sim) header() [][2]string {
	var extra [][2]string
	if s.fleet.cfg.Header != nil {
		extra = s.fleet.cfg.Header(s.id)
	}
	return append(extra, s.minRevision()...)
}

// silence keeps a half-open connection without sending anything.
func (s *sim) silence() error {
	if err := s.session.flush(); err != nil {
		return err
	}
	for {
		if err := s.work(); err != nil {
			return err
		}
		s.sleep(-1)
	}
}

// over processes the end of a session.
func (s *sim) over(err error) {
	f := s.fleet
	if c := s.session; c != nil {
		if c.msg.resources > 0 {
			s.unlearn(c.msg.of)
		}
		s.adopt(nil)
		if s.again.Vanish && s.drop {
			s.stale = append(s.stale, c.conn)
		} else {
			c.close(s.again.Reset)
		}
		if s.streaming {
			f.count.connected.Add(-1)
		}
		s.session = nil
	}
	s.turnBack()
	s.again.Vanish, s.again.Reset = false, false
	s.leave()
	if errors.Is(err, errQuit) {
		return
	}
	var st status
	var dial *net.OpError
	switch {
	case errors.As(err, &st):
		f.count.end(st.code, st.message)
	case errors.As(err, &dial) && dial.Op == "dial":
		f.count.end("dial", err.Error())
	default:
		f.count.end("io", err.Error())
	}
}

// leave counts the proxy as not joined.
func (s *sim) leave() {
	s.streaming = false
	s.owe(-s.unacked)
	if s.joined {
		s.joined = false
		s.fleet.count.joined.Add(-1)
		s.fleet.signal()
	}
	s.stopWaiting()
	if s.again.Cold {
		s.forget()
		s.again.Cold = false
	}
}

func (s *sim) end() {
	s.unpost()
	for _, c := range s.stale {
		_ = c.Close()
	}
	s.forget()
	if s.sampled {
		s.fleet.count.sampledNow.Add(-1)
	}
}

// reconnect ends the session; the next one begins as r describes.
func (s *sim) reconnect(r Reconnect) {
	s.again, s.drop = r, true
	s.tries = 0
}

func (s *sim) behave(b Behaviour) { s.shape = b }

func (s *sim) sendRaw(message []byte) {
	if s.session != nil && s.streaming {
		s.session.send(prefix(append(make([]byte, 5, 5+len(message)), message...)))
	}
}

// maxName limits the length of a name in an example, in bytes.
const maxName = 256

func (s *sim) violation(k Kind, rec *record, detail string) {
	e := Example{Proxy: s.id.String(), Detail: detail}
	if rec != nil {
		e.Type, e.Name = rec.t.String(), rec.name[:min(len(rec.name), maxName)]
	}
	s.fleet.count.violation(k, e)
}

// violationOf counts a violation about a name without a record.
func (s *sim) violationOf(k Kind, t xds.Type, name, detail string) {
	s.fleet.count.violation(k, Example{Proxy: s.id.String(), Type: t.String(), Name: name, Detail: detail})
}
