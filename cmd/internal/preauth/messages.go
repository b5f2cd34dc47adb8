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

// following is a connection whose client's bytes are followed, as gRPC reads them.
type following struct {
	net.Conn
	of *conn
}

// holdStep is how many bytes a connection may keep of messages before its holder is told, and by how much these change until it is again:
// acknowledgements and certificate requests cost nobody's lock.
const holdStep = 64 << 10

// workStep is in what portions the holder is told what frames cost, as partial.Messages.Work has it: some acknowledgements, or a few calls.
const workStep = 256

// Read implements net.Conn. What follows too many frames stays unread until a credential was shown, as what follows too many bytes (conn.Read), and so
// do lists of headers that are too long, of which the first frame says so, and those that follow one of which gRPC made no call. A compressed
// message is not given to gRPC at all, with a credential or without one: it has the decompressors that any of our dependencies registers, and makes up to
// a thousand times the bytes of it before anybody is asked.
func (f following) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	f.of.messages.Read(b[:n])
	f.of.hold()
	if err := f.of.rest(); err != nil {
		return 0, err
	}
	if f.of.messages.Compressed() {
		obs.Bounded.WithLabelValues("messages").Inc()
		f.of.of.clients.Warn("a connection was closed because a message on it is compressed: no compressed messages are taken", "compressed", obs.KeyPeer,
			f.of.Conn.RemoteAddr().String())
		_ = f.of.Close() // its client sees that it ended
		return 0, net.ErrClosed
	}
	if why := f.of.excess(); why != "" {
		if err := f.of.await(why); err != nil {
			return 0, err
		}
	}
	return n, err
}

// uncompressed has a stream's answers sent as they are, also where its client's headers say that its messages are compressed: gRPC answers in the same encoding
// (https://github.com/grpc/grpc/blob/master/doc/compression.md), and what is sent to thousands of streams is compressed for each.
func uncompressed(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
		return err
	}
	return next(srv, stream)
}

// excess is what a client without a credential has sent too much of; empty: of nothing.
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

// hold tells the holder what the connection keeps of messages. There is none before a credential, and nothing to tell: Limits.Bytes.
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

// rest waits where the holder's frames cost more than they may: what follows stays unread meanwhile, and a client that goes on sending waits for TCP.
// Calls that are begun and reset at once, and frames of a few bytes, are handled without end otherwise (CVE-2023-44487).
func (c *conn) rest() error {
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

// count follows the messages of a call, and ends it where one is larger than those of its method may be, or where the first does not
// come in time: gRPC answers Canceled, the log says why.
func (l *Limiter) count(ctx context.Context, c *conn, method string) context.Context {
	call := &partial.Call{}
	if l.limits.Message != nil {
		call.Limit = l.limits.Message(method)
	}
	if call.Limit > 0 {
		limited, cancel := context.WithCancel(ctx)
		end := func(why string, err error) {
			obs.Bounded.WithLabelValues("messages").Inc()
			l.clients.Warn("a call was ended because of its messages", why, obs.KeyPeer, c.Conn.RemoteAddr().String(), "method", method, obs.KeyError, err)
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
	context.AfterFunc(ctx, func() { // gRPC ends it with the call
		c.messages.End(call)
		c.hold()
	})
	return ctx
}
