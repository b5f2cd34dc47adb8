package serving

import (
	"crypto/x509"
	"encoding/binary"
	"net"
)

// records reads a TLS connection one record at a time. crypto/tls retains its read buffer while the connection lives.
// If a Read also returned a part of the next record, this buffer would grow to twice the largest record.
type records struct {
	net.Conn
	head       [recordHead]byte // header of the next record
	come, gone int              // numbers of header bytes that were received, and that Read has returned
	left       int              // unread bytes of the present record

	chains [][]*x509.Certificate // verified chains of the client's certificate
}

// recordHead is the length of a record's header: type, version, and two bytes of length (RFC 8446 5.1).
const recordHead = 5

// Read implements io.Reader. One system call reads the rest of a record and the header of the next record.
func (r *records) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if r.left > 0 {
		n, err := r.Conn.Read(b[:min(len(b), r.left+recordHead)])
		if n > r.left {
			r.come = copy(r.head[:], b[r.left:n])
			n, err = r.left, nil // a later call returns the error, after the bytes of the header
		}
		r.left -= n
		return n, err
	}
	if r.gone == r.come {
		n, err := r.Conn.Read(r.head[r.come:])
		if r.come += n; n == 0 {
			return 0, err
		}
	}
	n := copy(b, r.head[r.gone:r.come])
	if r.gone += n; r.gone == recordHead {
		r.left = int(binary.BigEndian.Uint16(r.head[3:]))
		r.come, r.gone = 0, 0
	}
	return n, nil
}
