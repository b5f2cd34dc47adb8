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

// handshake makes the session's connection one of TLS: with TLS 1.3 and AES the session takes the records over once the
// handshake is done, and nothing else of it is kept; with anything else it stays with crypto/tls.
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
		c.conn, c.socket = conn, nil // it goes on reading through `in`
		return nil
	}
	c.raw = bytes.Clone(in.buf[in.from:in.to])
	aheads.Put(in.buf)
	return nil
}

// secrets takes the traffic secrets from the lines of a log of keys (SSLKEYLOGFILE: label, random of the client, secret).
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

// ahead reads from a connection what there is, and gives no more of it than the record that is being read: what comes after
// the handshake stays here. One that has failed is left to the garbage collector, since its reader may still hold it.
type ahead struct {
	net.Conn
	buf      *[aheadSize]byte
	from, to int
	head     [recordHead]byte
	heads    int // bytes of head that were given
	left     int // bytes of the record that were not
}

// aheadSize is room for what a server says in a handshake.
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
