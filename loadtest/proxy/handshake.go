package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// handshake performs the TLS handshake on the session's connection. With TLS 1.3 and AES the session then processes
// records itself and keeps no other TLS state; with other suites crypto/tls does.
func (c *session) handshake(ctx context.Context, of func(Identity) (*tls.Config, error)) error {
	cfg, err := of(c.sim.id)
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	cfg = cfg.Clone()
	if !slices.Contains(cfg.NextProtos, "h2") {
		cfg.NextProtos = append(slices.Clip(cfg.NextProtos), "h2")
	}
	var keys secrets
	cfg.KeyLogWriter = &keys
	socket := c.conn
	in := &ahead{Conn: socket, buf: aheads.Get().(*[aheadSize]byte)}
	conn := tls.Client(in, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	state := conn.ConnectionState()
	if state.Version == tls.VersionTLS13 {
		if c.records, err = newRecords(socket, state.CipherSuite, keys.client, keys.server); err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
	}
	if c.records == nil {
		c.conn, c.socket = conn, nil // `in` continues to read from the connection
		return nil
	}
	c.raw = bytes.Clone(in.buf[in.from:in.to])
	aheads.Put(in.buf)
	return nil
}

// secrets receives the traffic secrets from a key log (SSLKEYLOGFILE: label, client random, secret).
type secrets struct{ client, server []byte }

func (s *secrets) Write(line []byte) (int, error) {
	fields := bytes.Fields(line)
	if len(fields) != 3 {
		return 0, errors.New("a log of keys without three words a line")
	}
	var into *[]byte
	switch string(fields[0]) {
	case "CLIENT_TRAFFIC_SECRET_0":
		into = &s.client
	case "SERVER_TRAFFIC_SECRET_0":
		into = &s.server
	default:
		return len(line), nil
	}
	var err error
	*into, err = hex.AppendDecode(nil, fields[2])
	return len(line), err
}

// ahead reads ahead from a connection during the handshake, and returns bytes of the current record only. Bytes after
// the handshake stay in its buffer. After a failure the garbage collector frees it, because its reader may still use
// it.
type ahead struct {
	net.Conn
	buf      *[aheadSize]byte
	from, to int
	head     [recordHead]byte
	heads    int // bytes of head that were returned
	left     int // bytes of the record that are still to be returned
}

// aheadSize is enough for a server's handshake messages.
const aheadSize = 4 << 10

var aheads = sync.Pool{New: func() any { return new([aheadSize]byte) }}

func (a *ahead) Read(b []byte) (int, error) {
	if a.from == a.to {
		n, err := a.Conn.Read(a.buf[:])
		if a.from, a.to = 0, n; n == 0 {
			return 0, err
		}
	}
	have := a.buf[a.from:a.to]
	var n int
	if a.left > 0 {
		n = copy(b, have[:min(len(have), a.left)])
		a.left -= n
	} else {
		n = copy(b, have[:min(len(have), recordHead-a.heads)])
		copy(a.head[a.heads:], b[:n])
		if a.heads += n; a.heads == recordHead {
			a.heads, a.left = 0, recordSize(a.head[:])-recordHead
		}
	}
	a.from += n
	return n, nil
}
