package serve

import "net"

// Listen wraps a listener so that the server can close the connection of a stream. gRPC has no other way to end a
// stream whose client neither reads nor disconnects.
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, remote: &address{Addr: c.RemoteAddr(), close: c.Close}}, nil
}

// conn is a connection that serves small reads from one larger read of the kernel. gRPC, and TLS below it, read a
// header first, and an ACK is hardly longer than that.
type conn struct {
	net.Conn
	remote   *address
	ahead    [aheadSize]byte // bytes from:to were read and not returned yet
	from, to uint8
}

// aheadSize is large enough for an ACK: about 120 bytes of TLS. Each connection has this buffer.
const aheadSize = 200

// Read implements net.Conn. A read that is smaller than the buffer is served from it.
func (c *conn) Read(b []byte) (int, error) {
	if c.from == c.to {
		if len(b) == 0 || len(b) >= len(c.ahead) {
			return c.Conn.Read(b)
		}
		n, err := c.Conn.Read(c.ahead[:])
		if n <= 0 {
			return n, err
		}
		c.from, c.to = 0, uint8(n) // an error is returned again by the next read
	}
	n := copy(b, c.ahead[c.from:c.to])
	c.from += uint8(n)
	return n, nil
}

func (c *conn) RemoteAddr() net.Addr { return c.remote }

// address is a peer's address with a function that closes the connection. gRPC passes it on to the stream.
type address struct {
	net.Addr
	close func() error
}

// Unwrap returns the address of the underlying connection.
func (a *address) Unwrap() net.Addr { return a.Addr }
