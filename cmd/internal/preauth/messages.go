package preauth

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"navarch.io/navarch/cmd/internal/partial"
	"navarch.io/navarch/store/obs"
)

// following is a connection after its handshake. It counts the HTTP/2 frames while gRPC reads them.
type following struct {
	net.Conn
	of *conn
}

// A connection tells its Holder the number of bytes of its incomplete messages. It does so after each change by
// holdStep (partial.Messages.Change). The Holder limits the cost of an authenticated connection. Acknowledgements and
// certificate requests are smaller, so they never take the Holder's lock.
const holdStep = 64 << 10

// workStep is the smallest cost of frames that is reported to the Holder, in the units of partial.Messages.Work. A few
// calls cost about this much.
const workStep = 256

// Read implements net.Conn. In three cases it waits for an accepted credential before it returns: the client has begun
// too many frames, its header list is too long, or an earlier header list of the client began no call. During the wait,
// further bytes stay in the kernel.
//
// A compressed message closes the connection, with or without a credential. gRPC would decompress the message before a
// handler runs, to up to a thousand times its size. gRPC would use any decompressor that a dependency registers.
func (f following) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	f.of.messages.Read(b[:n])
	f.of.hold()
	if err := f.of.throttle(); err != nil {
		return 0, err
	}
	if f.of.messages.Compressed() {
		obs.Bounded.WithLabelValues("messages").Inc()
		f.of.of.clients.Warn("a connection was closed: compressed messages are not accepted",
			"compressed", obs.KeyPeer,
			f.of.Conn.RemoteAddr().String())
		_ = f.of.Close() // the client sees the end
		return 0, net.ErrClosed
	}
	if why := f.of.excess(); why != "" {
		if err := f.of.await(why); err != nil {
			return 0, err
		}
	}
	return n, err
}

// uncompressed sends the responses of a stream uncompressed, even if the client's headers announce compressed messages.
// By default gRPC answers in the client's encoding (https://github.com/grpc/grpc/blob/master/doc/compression.md). gRPC
// would compress a response separately for each of thousands of streams.
func uncompressed(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
		return err
	}
	return next(srv, stream)
}

// excess returns the limit that a client without a credential has exceeded. The result is empty if no limit is
// exceeded, or if a credential was accepted.
func (c *conn) excess() reason {
	if c.shown.Load() {
		return ""
	}
	if c.messages.Frames() > c.of.limits.Frames {
		return tooFine
	}
	if begun, bytes := c.messages.Lists(); bytes > c.of.limits.List || begun > int(c.calls.Load())+1 {
		return tooLong
	}
	return ""
}

// hold reports a change in the number of bytes of incomplete messages to the Holder. A connection without an accepted
// credential has no Holder, but Limits.Bytes limits its bytes.
func (c *conn) hold() {
	if change := c.messages.Change(holdStep); change != 0 {
		c.mu.Lock()
		holder := c.holder
		c.mu.Unlock()
		if holder != nil {
			holder.Hold(change)
		}
	}
}

// throttle reports the cost of frames to the Holder, and waits for the time that the Holder returns. During the wait
// further bytes stay unread, and TCP slows the client down. The wait limits tiny frames, and calls that are begun and
// reset at once (CVE-2023-44487). The error is net.ErrClosed if the connection ended during the wait.
func (c *conn) throttle() error {
	work := c.messages.Work(workStep)
	if work == 0 {
		return nil
	}
	c.mu.Lock()
	holder := c.holder
	c.mu.Unlock()
	if holder == nil {
		return nil
	}
	wait := holder.Work(work)
	if wait <= 0 {
		return nil
	}
	obs.Bounded.WithLabelValues("frames").Inc()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.gone:
		return net.ErrClosed
	}
}

// count starts to count the messages of a call. For a method with a message limit, it ends the call if a message is
// above the limit, or if the first message is late (Limits.First). The client of an ended call gets the status
// Canceled, and the log has the reason.
func (l *Limiter) count(ctx context.Context, c *conn, method string) context.Context {
	call := &partial.Call{}
	if l.limits.Message != nil {
		call.Limit = l.limits.Message(method)
	}
	if call.Limit > 0 {
		limited, cancel := context.WithCancel(ctx)
		end := func(why string, err error) {
			obs.Bounded.WithLabelValues("messages").Inc()
			l.clients.Warn("a call was ended because of its messages",
				why, obs.KeyPeer, c.Conn.RemoteAddr().String(), "method", method, obs.KeyError, err)
			cancel()
		}
		late := time.AfterFunc(l.limits.First, func() {
			end("late", fmt.Errorf("no message came in %v", l.limits.First))
		})
		call.Complete = func() { late.Stop() }
		call.TooLarge = func(size uint32) {
			late.Stop()
			end("too large", fmt.Errorf("a message of %d bytes, %d at most", size, call.Limit))
		}
		context.AfterFunc(limited, func() { late.Stop() })
		ctx = limited
	}
	c.messages.Begin(call)
	context.AfterFunc(ctx, func() { // gRPC ends ctx with the call
		c.messages.End(call)
		c.hold()
	})
	return ctx
}
