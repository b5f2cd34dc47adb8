package proxy

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"sync"
	"time"
)

// records is the record layer of TLS 1.3 (RFC 8446, 5) for a connection whose handshake crypto/tls has performed. A
// tls.Conn keeps the buffer of its largest read, 40 KB for most proxies, and uses one system call for each record of 16
// KB. Here records are decrypted in place, and up to four are written with one call.
type records struct {
	conn    net.Conn
	in, out half
}

// half is one direction.
type half struct {
	aead  cipher.AEAD
	iv    [12]byte
	nonce [12]byte // of the current record
	seq   uint64
}

const (
	recordAlert, recordHandshake, recordData = 21, 22, 23 // ContentType

	recordHead  = 5
	tagSize     = 16
	maxPlain    = 16384                          // bytes of data in one record
	maxRecord   = recordHead + maxPlain + 256    // the longest record that may arrive
	sealedSize  = recordHead + maxPlain + 1 + 16 // the longest record that is sent
	sealedBatch = 4 * sealedSize
)

// sealing are buffers for records that are written with one call.
var sealing = sync.Pool{New: func() any { return new([sealedBatch]byte) }}

// newRecords continues a connection from its first data record. It returns nil for a cipher suite that is not
// supported here.
func newRecords(conn net.Conn, suite uint16, client, server []byte) (*records, error) {
	var sum func() hash.Hash
	var keySize int
	switch suite {
	case tls.TLS_AES_128_GCM_SHA256:
		sum, keySize = sha256.New, 16
	case tls.TLS_AES_256_GCM_SHA384:
		sum, keySize = sha512.New384, 32
	default:
		return nil, nil
	}
	r := &records{conn: conn}
	return r, errors.Join(r.out.key(sum, client, keySize), r.in.key(sum, server, keySize))
}

// key derives the keys of a direction from its traffic secret (7.3).
func (h *half) key(sum func() hash.Hash, secret []byte, size int) error {
	key, err := expand(sum, secret, "key", size)
	if err != nil {
		return err
	}
	iv, err := expand(sum, secret, "iv", len(h.iv))
	if err != nil {
		return err
	}
	copy(h.iv[:], iv)
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	h.aead, err = cipher.NewGCM(block)
	return err
}

// expand computes HKDF-Expand-Label without a context (7.1).
func expand(sum func() hash.Hash, secret []byte, label string, n int) ([]byte, error) {
	label = "tls13 " + label
	return hkdf.Expand(sum, secret, string([]byte{byte(n >> 8), byte(n), byte(len(label))})+label+"\x00", n)
}

// next returns the nonce of the next record.
func (h *half) next() []byte {
	h.nonce = h.iv
	binary.BigEndian.PutUint64(h.nonce[4:], binary.BigEndian.Uint64(h.iv[4:])^h.seq)
	h.seq++
	return h.nonce[:]
}

// seal appends one encrypted record to a buffer with enough room.
func (h *half) seal(to []byte, kind byte, plain []byte) []byte {
	at, size := len(to), len(plain)+1+tagSize
	to = append(to, recordData, 3, 3, byte(size>>8), byte(size))
	to = append(append(to, plain...), kind)
	return h.aead.Seal(to[:at+recordHead], h.next(), to[at+recordHead:], to[at:at+recordHead])
}

// open decrypts the record at the start of b in place. It returns its type, its plaintext and its length; n is 0 for an
// incomplete record. The error reports that the record is not valid.
func (h *half) open(b []byte) (kind byte, plain []byte, n int, err error) {
	if n = recordSize(b); n == 0 || n > len(b) {
		return 0, nil, 0, nil
	}
	if n > maxRecord || b[0] != recordData {
		return 0, nil, 0, fmt.Errorf("tls: a record of type %d with %d bytes", b[0], n-recordHead)
	}
	if plain, err = h.aead.Open(b[recordHead:recordHead], h.next(), b[recordHead:n], b[:recordHead]); err != nil {
		return 0, nil, 0, fmt.Errorf("tls: a record cannot be opened: %w", err)
	}
	for i := len(plain) - 1; i >= 0; i-- { // zeros are padding
		if plain[i] != 0 {
			return plain[i], plain[:i], n, nil
		}
	}
	return 0, nil, 0, errors.New("tls: a record without a type")
}

// recordSize returns the length of the record at the start of b; 0 if its header is incomplete. An overlong record is
// reported as one byte above the maximum.
func recordSize(b []byte) int {
	if len(b) < recordHead {
		return 0
	}
	return min(recordHead+int(binary.BigEndian.Uint16(b[3:])), maxRecord+1)
}

// Write encrypts and writes b with as few records and calls as possible. The error is that of the connection.
func (r *records) Write(b []byte) (int, error) {
	room := sealing.Get().(*[sealedBatch]byte)
	defer sealing.Put(room)
	written := 0
	for written < len(b) {
		out, n := room[:0], written
		for n < len(b) && len(out)+sealedSize <= len(room) {
			plain := b[n:min(n+maxPlain, len(b))]
			out = r.out.seal(out, recordData, plain)
			n += len(plain)
		}
		if _, err := r.conn.Write(out); err != nil {
			return written, err
		}
		written = n
	}
	return written, nil
}

// read decrypts records at the start of raw in place, and returns their data and the rest. Without data the caller has
// to read more.
func (r *records) read(raw []byte) (plain, rest []byte, err error) {
	for {
		kind, plain, n, err := r.in.open(raw)
		if err != nil || n == 0 {
			return nil, raw, err
		}
		raw = raw[n:]
		switch {
		case kind == recordData && len(plain) > 0:
			return plain, raw, nil
		case kind == recordData: // empty records hide the length
		case kind == recordHandshake && len(plain) > 0 && plain[0] == 4: // a session ticket, which is not used
		case kind == recordAlert && len(plain) == 2 && plain[1] == 0: // close_notify
			return nil, raw, io.EOF
		case kind == recordAlert && len(plain) == 2:
			return nil, raw, fmt.Errorf("tls: remote error: alert %d", plain[1])
		default:
			return nil, raw, fmt.Errorf("tls: a message of type %d that is not spoken here", kind)
		}
	}
}

// end sends close_notify, without blocking.
func (r *records) end() {
	_ = r.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = r.conn.Write(r.out.seal(make([]byte, 0, 32), recordAlert, []byte{1, 0}))
}
