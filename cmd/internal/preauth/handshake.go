package preauth

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/turns"
)

// Credentials wraps inner, which speaks TLS or plain text, and limits how many handshakes are computed at once.
// Connections must come from Listen; the handshake of any other connection fails.
//
// The function admission is called for each TLS connection with a verified client certificate. Its arguments are the
// connection's state and the peer's address. If it returns true, and the returned Assign succeeds or is nil, the
// connection counts as authenticated. In all other cases, only a call on the connection can authenticate it
// (Authenticated). The function admission may be nil.
//
// Failed handshakes are logged at a limited rate, unless the client closed the connection or a deadline passed. After
// the handshake, the Limiter counts the client's messages.
func (l *Limiter) Credentials(
	inner credentials.TransportCredentials, admission func(tls.ConnectionState, net.Addr) (Assign, bool),
) credentials.TransportCredentials {
	return handshakes{inner, l, admission}
}

type handshakes struct {
	credentials.TransportCredentials
	limiter *Limiter
	admits  func(tls.ConnectionState, net.Addr) (Assign, bool)
}

// ServerHandshake implements credentials.TransportCredentials. It logs a failed handshake and returns io.EOF for it.
func (h handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := behind(raw.RemoteAddr())
	if c == nil {
		return nil, nil, errors.New("the connection did not come through the limiter's listener")
	}
	s := &steps{Conn: raw, of: c, line: h.limiter.line}
	defer s.done()
	over, info, err := h.TransportCredentials.ServerHandshake(s)
	if cause := handshakeFault(err); cause != "" {
		h.limiter.clients.Warn("TLS handshake failed", cause, obs.KeyPeer, raw.RemoteAddr().String(), obs.KeyError, err)
	}
	if err != nil {
		// gRPC closes the connection after io.EOF without logging, so that clients cannot cause thousands of log lines
		return nil, nil, io.EOF
	}
	t, is := info.(credentials.TLSInfo)
	if is {
		c.step.Store(time.Now().UnixNano())
	}
	if is && h.admits != nil && len(t.State.VerifiedChains) > 0 {
		if assign, ok := h.admits(t.State, raw.RemoteAddr()); ok && c.assign(assign) == nil {
			c.authenticated()
		}
	}
	return following{over, c}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.limiter, h.admits}
}

// steps is a connection during its handshake. For each computation it needs a turn (a permission to compute).
// Limits.Steps handshakes can have a turn at a time, and the Limiter's field line decides their order. While a
// handshake waits for its client, it has no turn. Among the handshakes of one source (the client's network), those that
// have begun get their turns first.
type steps struct {
	net.Conn
	of    *conn
	line  *turns.Line
	begun bool
	turn  bool
	over  bool
	next  record
}

// Read implements net.Conn.
func (s *steps) Read(b []byte) (int, error) {
	if s.over {
		return s.Conn.Read(b)
	}
	s.pause()
	n, err := s.Conn.Read(b)
	s.of.wakes(s.next.read(b[:n]))
	if err == nil || n > 0 {
		s.of.working.Store(true)
		if s.turn = s.line.Enter(s.of.entry.Source(), s.begun, s.of.gone); !s.turn {
			return 0, net.ErrClosed
		}
		s.begun = true
	}
	return n, err
}

// Write implements net.Conn. When the first write begins, the answer to the client's first message has been computed.
func (s *steps) Write(b []byte) (int, error) {
	if !s.over && s.of.step.Load() == 0 {
		s.of.step.Store(time.Now().UnixNano())
	}
	return s.Conn.Write(b)
}

// pause ends the current turn, if there is one.
func (s *steps) pause() {
	if s.turn {
		s.turn = false
		s.of.working.Store(false)
		s.line.Leave(s.of.entry.Source())
	}
}

// done records that the handshake has ended.
func (s *steps) done() {
	s.over = true
	s.of.wakes(1)
	s.pause()
}

// handshakeFault returns the cause under which a failed handshake is logged. It is empty if the handshake succeeded, or
// if the connection ended or a deadline passed. For example, load balancers that probe a port end connections early.
func handshakeFault(err error) string {
	var remote *net.OpError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, net.ErrClosed):
		return ""
	case errors.As(err, new(tls.RecordHeaderError)):
		return "the client does not speak TLS"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "certificate of the client"
	case errors.As(err, &remote) && remote.Op == "remote error":
		return "alert of the client"
	}
	return "other"
}
