package preauth

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// A client that sends its handshake byte by byte would wake this process for each of them, and a thousand such clients cost a third of a
// processor. So the kernel is told how much has to be there before anybody is woken (SO_RCVLOWAT, socket(7)): much as long as a connection waits
// for its place, then the header of a TLS record, then the rest of the record that its client has begun, and after the handshake any byte.

// leastWaiting is for a connection that has no place: nobody reads it. It is less than what the kernel keeps for a connection anyway.
const leastWaiting = 16 << 10

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

// headerSize is the length of a TLS record's header (RFC 8446, 5.1), of which the last two bytes say how much follows.
const headerSize = 5

// record is how far a client's TLS records have been read.
type record struct {
	header [headerSize]byte
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
