package preauth

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// A client that sends its handshake byte by byte would wake this process for each byte, and a thousand such clients
// would cost a third of a processor. So each connection sets the number of bytes that wake its reader (SO_RCVLOWAT,
// socket(7)). While the connection waits for its place, the number is large. During the handshake it is the length of a
// TLS record's header, and after the header it is the length of the record's body. After the handshake it is 1.

// leastWaiting is the number of bytes that wake the reader of a connection without a place. No code reads from such a
// connection yet. The number is less than the kernel's receive buffer.
const leastWaiting = 16 << 10

// wakes sets the number of bytes that wake the connection's reader. The end of the connection also wakes the reader.
// Bytes that have arrived can be read at any time. Connections that are not sockets (in tests) wake at any byte.
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
		return // closed
	}
	_ = raw.Control(func(fd uintptr) { // if it fails (closed, or not TCP), any byte wakes the reader
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes)
	})
}

// headerSize is the length of a TLS record's header (RFC 8446, 5.1). Its last two bytes are the length of the body.
const headerSize = 5

// record is the read position within a client's TLS records.
type record struct {
	header [headerSize]byte
	have   int // bytes of the header that were read
	body   int // bytes of the body that are still to come
}

// read processes b, the bytes that were read from the connection. It returns the number of further bytes that complete
// the current record, or the next record's header.
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
