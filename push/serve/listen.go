package serve

import "net"

// Listen returns a listener that wraps l, so that a Server can close the connection of a stream. gRPC has no other way
// to end a stream whose client neither reads nor disconnects. Close and Addr of the result are those of l. Accept
// returns the connections of l with a small read buffer, and the errors of l unchanged.
func Listen(l net.Listener) net.Listener { return listener{l} }

// listener is the result of Listen.
type listener struct{ net.Listener }

// Accept returns the next connection, wrapped in a conn. Errors are those of the wrapped listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, remote: &address{Addr: c.RemoteAddr(), close: c.Close}}, nil
}

// conn is a connection that serves small reads from a buffer, which one system call fills. gRPC and TLS read the
// header of a message first, then the rest. An ACK is hardly longer than its header, so one system call reads the
// whole ACK.
type conn struct {
	net.Conn
	remote   *address
	ahead    [aheadSize]byte // ahead[from:to] was read from the kernel and not returned yet
	from, to uint8
}

// aheadSize is the size of a connection's buffer in bytes. It is large enough for an ACK, which has about 120 bytes in
// TLS.
const aheadSize = 200

// Read returns bytes of the buffer. If the buffer is empty, Read first fills it from the connection. If b is empty, or
// at least as large as the empty buffer, Read reads from the connection directly.
func (c *conn) Read(b []byte) (int, error) {
	if c.from == c.to {
		if len(b) == 0 || len(b) >= len(c.ahead) {
			return c.Conn.Read(b)
		}
		n, err := c.Conn.Read(c.ahead[:])
		if n <= 0 {
			return n, err
		}
		c.from, c.to = 0, uint8(n) // an error is dropped here, because the connection returns it again at the next read
	}
	n := copy(b, c.ahead[c.from:c.to])
	c.from += uint8(n)
	return n, nil
}

// RemoteAddr returns the peer's address, as an *address.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// address is a peer's address with a function that closes the connection. gRPC passes it to the stream's handler.
type address struct {
	net.Addr
	close func() error
}

// Unwrap returns the address of the underlying connection.
func (a *address) Unwrap() net.Addr { return a.Addr }
