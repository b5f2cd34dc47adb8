package web

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"

	"navarch.io/navarch/store/remote"
	"navarch.io/navarch/store/turns"
)

// Handshakes returns a TLS listener like tls.NewListener, whose handshakes are computed in turns. A turn is the right
// to compute. Each client message of a handshake waits until the line grants a turn to the client's host (remote.Host).
// A client with many handshakes thus does not delay other clients. Accept does not wait for the handshake, which the
// first Read or Write of a connection performs. If the handshake fails, that call and each later Read or Write returns
// its error. The accepted connections are not of type *tls.Conn.
func Handshakes(l net.Listener, conf *tls.Config, line *turns.Line) net.Listener {
	return handshakes{l, conf, line}
}

// handshakes is the listener that Handshakes returns.
type handshakes struct {
	net.Listener
	conf *tls.Config
	line *turns.Line
}

// Accept implements net.Listener.
func (h handshakes) Accept() (net.Conn, error) {
	raw, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := &steps{Conn: raw, host: remote.Host(raw.RemoteAddr()), line: h.line, gone: make(chan struct{})}
	return &secure{Conn: tls.Server(s, h.conf), steps: s}, nil
}

// secure is a connection over TLS. Its first reader or writer performs the handshake.
type secure struct {
	*tls.Conn
	steps *steps
	once  sync.Once
	fault error
}

func (c *secure) handshake() error {
	c.once.Do(func() {
		c.fault = c.Handshake()
		c.steps.done()
	})
	return c.fault
}

// Read implements net.Conn.
func (c *secure) Read(b []byte) (int, error) {
	if err := c.handshake(); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *secure) Write(b []byte) (int, error) {
	if err := c.handshake(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn. It also ends the wait for a turn.
func (c *secure) Close() error {
	c.steps.closed.Do(func() { close(c.steps.gone) })
	return c.Conn.Close()
}

// steps is the connection below TLS. During the handshake, the client's host gets a turn for each client message. The
// turn ends when the handshake is over or waits for the next message.
type steps struct {
	net.Conn
	host   netip.Prefix
	line   *turns.Line
	gone   chan struct{} // closed with the connection
	closed sync.Once

	// begun: the first message has arrived. turn: a turn is in use. over: the handshake has ended. Only the goroutine
	// that performs the handshake changes these fields, and they do not change after the handshake.
	begun, turn, over bool
}

// Read implements net.Conn.
func (s *steps) Read(b []byte) (int, error) {
	if s.over {
		return s.Conn.Read(b)
	}
	s.pause()
	n, err := s.Conn.Read(b)
	if n > 0 {
		if s.turn = s.line.Enter(s.host, s.begun, s.gone); !s.turn {
			return 0, net.ErrClosed
		}
		s.begun = true
	}
	return n, err
}

// pause ends the current turn, if any.
func (s *steps) pause() {
	if s.turn {
		s.turn = false
		s.line.Leave(s.host)
	}
}

// done records the end of the handshake: later reads need no turn.
func (s *steps) done() {
	s.pause()
	s.over = true
}
