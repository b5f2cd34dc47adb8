package serve

import "net"

// Listen wraps a listener so that a stream can be closed from outside: gRPC has no way to end one whose client neither
// reads nor goes away but to close its connection.
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, remote: &address{Addr: c.RemoteAddr(), close: c.Close}}, nil
}

// conn is a connection whose small reads are answered from what one call of the kernel gave: gRPC, and TLS below it, asks
// for a header first, and an ACK is hardly longer than that.
type conn struct {
	net.Conn
	remote   *address
	ahead    [aheadSize]byte // what has come and was not given on is from:to
	from, to uint8
}

// aheadSize is room for an ACK: some 120 bytes of TLS. Each connection has it.
const aheadSize = 200

func (c *conn) Read(b []byte) (int, error) {
	if c.from == c.to {
		if len(b) == 0 || len(b) >= len(c.ahead) {
			return c.Conn.Read(b)
		}
		n, err := c.Conn.Read(c.ahead[:])
		if n <= 0 {
			return n, err
		}
		c.from, c.to = 0, uint8(n) // an error comes again, after what is kept
	}
	n := copy(b, c.ahead[c.from:c.to])
	c.from += uint8(n)
	return n, nil
}

func (c *conn) RemoteAddr() net.Addr { return c.remote }

// address is a peer's address that knows how to hang up: gRPC hands it through to the stream.
type address struct {
	net.Addr
	close func() error
}

// Unwrap is the address of the connection that Listen was given.
func (a *address) Unwrap() net.Addr { return a.Addr }
