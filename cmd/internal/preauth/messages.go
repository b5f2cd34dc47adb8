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

// following is a connection after its handshake, whose HTTP/2 frames are counted as gRPC reads them.
type following struct {
	net.Conn
	of *conn
}

// holdStep is the least change, in bytes, of incomplete messages that is reported to the holder. Acknowledgements and
// certificate requests stay below it and never take the holder's lock.
const holdStep = 64 << 10

// workStep is the least cost of frames that is reported to the holder, in the units of partial.Messages.Work. A few
// calls cost about as much.
const workStep = 256

// Read implements net.Conn. In three cases it waits for an accepted credential before it returns: the client has begun
// too many frames, its header list is too long, or an earlier header list of the client began no call. Further bytes
// stay in the kernel meanwhile.
//
// A compressed message closes the connection, with or without a credential. gRPC would decompress it, to a thousand
// times its size, before a handler runs. It would use any decompressor that a dependency registers.
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
// gRPC would answer in the same encoding (https://github.com/grpc/grpc/blob/master/doc/compression.md), and compress a
// response separately for each of thousands of streams.
func uncompressed(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
		return err
	}
	return next(srv, stream)
}

// excess returns the limit that a client without a credential has exceeded; empty: the client is within the limits.
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

// hold reports the bytes of incomplete messages to the holder. Before a credential is accepted, Limits.Bytes applies
// instead.
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

// throttle waits if the cost of the holder's frames exceeds the holder's budget. Further bytes stay unread meanwhile,
// and TCP slows the client down. The wait limits tiny frames, and calls that are begun and reset at once
// (CVE-2023-44487). The error is net.ErrClosed: the connection ended during the wait.
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

// count counts the messages of a call. It ends the call if a message is above the method's limit, or if the first
// message is late. The client then gets Canceled, and the log has the reason.
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
