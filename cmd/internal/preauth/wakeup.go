package preauth

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// A client that sends its handshake byte by byte would wake this process for each of them, and a thousand such clients cost a third of a
// processor. So the kernel is told how much has to be there before anybody is woken (SO_RCVLOWAT, socket(7)): as long as a connection waits for
// its place what every client says at once, then the rest of the record that its client has begun, and after the handshake any byte.

// leastFirst is in bytes less than any client's first message: a ClientHello has 43 before its first list, HTTP/2's preface and settings 33.
const leastFirst = 32

// wakes has the connection's reader woken when there are so many bytes, or when its client has ended. Bytes that are there can be read at any
// time. Connections that are not the kernel's (in tests) wake at any byte.
func (c *conn) wakes(bytes int) {
	if c.least == bytes {
		return
	}
	c.least = bytes
	socket, is := c.Conn.(syscall.Conn)
	if !is {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) { // it is closed, or no TCP: then any byte wakes
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes)
	})
}

// record is how far a client's TLS records (RFC 8446, 5.1) have been read: a header of five bytes, of which the last two say how much follows.
type record struct {
	header [5]byte
	have   int // bytes of the header
	body   int // bytes of the body that are to come
}

// read takes what was read, and says how many bytes are to come until the record that was begun is complete; where none was begun, until there is
// the header of one.
func (r *record) read(b []byte) int {
	for len(b) > 0 {
		if r.have < len(r.header) {
			n := copy(r.header[r.have:], b)
			r.have, b = r.have+n, b[n:]
			if r.have == len(r.header) {
				r.body = int(binary.BigEndian.Uint16(r.header[3:]))
			}
			continue
		}
		n := min(r.body, len(b))
		r.body, b = r.body-n, b[n:]
		if r.body == 0 {
			r.have = 0
		}
	}
	if r.have == len(r.header) {
		return max(r.body, 1)
	}
	return len(r.header) - r.have
}
