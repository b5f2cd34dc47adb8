package preauth

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"navarch.io/navarch/cmd/internal/partial"
	"navarch.io/navarch/cmd/internal/sources"
)

// conn is one connection. It is unauthenticated until Authenticated is called for it.
type conn struct {
	net.Conn
	of      *Limiter
	address *address
	entry   *sources.Entry
	shared  bool          // its source is
	began   int64         // when it was given its place; unix nanoseconds
	least   int           // bytes that wake its reader; 0: any number (wakes)
	gone    chan struct{} // closed with it

	shown   atomic.Bool   // a credential was
	known   chan struct{} // closed when it was
	read    atomic.Int64  // bytes, until then
	working atomic.Bool   // a step of its handshake is computed, or waits for its turn
	step    atomic.Int64  // when its client came to the end of the last step of its handshake; unix nanoseconds, 0: of none
	calls   atomic.Int32  // until then
	headers atomic.Int64  // bytes of these

	mu       sync.Mutex // guards what follows
	deadline *time.Timer
	ended    bool
	lost     bool   // its place was given away
	assigned bool   // it has a holder
	holder   Holder // nil: it has none yet, or is to be told nothing

	messages partial.Messages // that its client has begun
}

// begin starts the time in which a credential has to be shown.
func (c *conn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended { // others may have displaced it
		c.wakes(headerSize)
		c.deadline = time.AfterFunc(c.of.limits.Credential, func() { c.end(tooLate) })
	}
}

// Read implements net.Conn. What may not be read without a credential stays in the kernel until one was shown: a call whose headers
// are here may have it.
func (c *conn) Read(b []byte) (int, error) {
	if c.shown.Load() {
		return c.Conn.Read(b)
	}
	room := int64(c.of.limits.Bytes) - c.read.Load()
	if room <= 0 {
		if err := c.await(tooMuch); err != nil {
			return 0, err
		}
		return c.Conn.Read(b)
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), room)])
	c.read.Add(int64(n))
	return n, err
}

// Write implements net.Conn. What is written after it has ended is not sent, TLS's close_notify above all, which would be the end to its client (Close).
func (c *conn) Write(b []byte) (int, error) {
	if !c.shown.Load() {
		select {
		case <-c.gone:
			return 0, net.ErrClosed
		default:
		}
	}
	return c.Conn.Write(b)
}

// await waits for a credential that may have come with what was read, for a while: that is verified in milliseconds, unless its
// issuer's keys have to be fetched. Else the connection ends for a reason. A client that has begun no call, for its list of headers has no end
// or is longer than gRPC takes, is not waited for: gRPC asks for more only once it has handled what it read.
func (c *conn) await(why reason) error {
	if c.calls.Load() == 0 {
		c.end(why)
		return net.ErrClosed
	}
	timer := time.NewTimer(c.of.await())
	defer timer.Stop()
	select {
	case <-c.known:
		return nil
	case <-c.gone:
	case <-timer.C:
		c.end(why)
	}
	return net.ErrClosed
}

// RemoteAddr implements net.Conn: an address from which gRPC's calls find the connection.
func (c *conn) RemoteAddr() net.Addr { return c.address }

// Busy implements sources.Holder: its handshake is being worked on, or its client came to the end of a step of it of late. One of a
// shared source is busy from its beginning for a while, because others wait for its place instead of being refused. That while does not begin
// again with each step: whoever waits there waits until as many connections have had theirs as came before. Bytes alone are no progress: they may
// come one by one. Those that came later have begun later, so they are busy for the same reason.
func (c *conn) Busy(now time.Time) (busy, younger bool) {
	within := func(since int64, patience time.Duration) bool {
		return since != 0 && now.Sub(time.Unix(0, since)) < patience
	}
	if c.shared && within(c.began, c.of.place()) {
		return true, true
	}
	return c.working.Load() || within(c.step.Load(), c.of.limits.Progress), false
}

// enter finds a place for it; false: there is none.
func (c *conn) enter() bool {
	c.began = time.Now().UnixNano()
	lost, ok := c.of.ledger.Enter(c.entry)
	if other, is := lost.(*conn); is {
		other.lose()
	}
	return ok
}

// lose closes it where its place was given away: at once, whatever is kept of a place (keeps), since it is counted no more.
func (c *conn) lose() {
	c.mu.Lock()
	ended := c.ended
	c.lost = true
	c.mu.Unlock()
	if ended {
		_ = c.Conn.Close()
		return
	}
	c.end(displaced)
}

// authenticated takes it out of the unauthenticated ones.
func (c *conn) authenticated() {
	if c.shown.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.shown.Swap(true) {
		return
	}
	close(c.known)
	if c.deadline != nil {
		c.deadline.Stop()
	}
	c.of.ledger.Know(c.entry)
	c.free()
}

// end closes it for a reason, unless it has shown a credential.
func (c *conn) end(why reason) {
	c.mu.Lock()
	first := !c.ended && !c.shown.Load()
	c.mu.Unlock()
	if !first {
		return
	}
	c.of.refuse(why, c)
	_ = c.Close() // its client sees that it ended
}

// Close implements net.Conn. Where its place is kept (keeps) its client sees the end when the place is free, not before: it would come again meanwhile, and
// wait for a place beside the one that it has. What was written is sent at once.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	c.ended = true
	close(c.gone)
	if c.deadline != nil {
		c.deadline.Stop()
	}
	if c.holder != nil {
		c.holder.Leave()
	}
	if c.shown.Load() {
		c.of.ledger.Forget(c.entry)
		return c.Conn.Close()
	}
	keeps := c.keeps()
	if keeps <= 0 || c.lost {
		c.free()
		return c.Conn.Close()
	}
	time.AfterFunc(keeps, func() {
		c.free()
		_ = c.Conn.Close()
	})
	return c.Conn.SetDeadline(past) // whoever reads or writes is done
}

// past is a time that is over.
var past = time.Unix(1, 0)

// Assign counts a connection for its holder, who has shown a credential on it. It is called once for each connection; end, from any
// goroutine, closes that. An error says that the holder has too many.
type Assign func(end func()) (Holder, error)

// Holder is told what one connection of it keeps; budget.Entry is one. The connection waits for its methods.
type Holder interface {
	// Hold counts bytes of messages that are not complete; negative: there are fewer. It may end connections, this one among them.
	Hold(bytes int)
	// Work counts what handling frames of it costs, in units of about a microsecond, and says for how long no more of it may be read; 0: it may.
	Work(units int) (wait time.Duration)
	// Leave is called when the connection is closed.
	Leave()
}

// assign has a holder count it, unless one does. nil: it is nobody's.
func (c *conn) assign(assign Assign) error {
	c.mu.Lock()
	if assign == nil || c.assigned || c.ended {
		c.mu.Unlock()
		return nil
	}
	c.assigned = true
	c.mu.Unlock()
	holder, err := assign(func() { _ = c.Close() })
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.assigned = false
	case c.ended:
		holder.Leave()
	default:
		c.holder = holder
	}
	return err
}

// keeps is for how long its place is kept once it has ended: until others could have taken it, had it stayed (Busy), so that clients that end their
// connections early, or are refused early, have no more handshakes computed than those that stay. Of a connection for which nothing was computed the place
// is free at once.
func (c *conn) keeps() time.Duration {
	step := c.step.Load()
	if step == 0 {
		return 0
	}
	until := time.Unix(0, step).Add(c.of.limits.Progress)
	if place := time.Unix(0, c.began).Add(c.of.place()); c.shared && place.After(until) {
		until = place
	}
	return time.Until(until)
}

// free gives its place back, and lets somebody in who waits for room.
func (c *conn) free() {
	c.of.ledger.Leave(c.entry)
	select {
	case c.of.left <- struct{}{}:
	default: // that somebody has left is said already
	}
}

// address is a peer's address from which its connection is found: gRPC hands it through to calls.
type address struct {
	net.Addr
	conn *conn
}

// connOf returns the connection of a call; nil: it was not accepted by a listener of a Limiter.
func connOf(ctx context.Context) *conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	return behind(p.Addr)
}

// behind is the connection of an address, which may be wrapped (push/serve does).
func behind(a net.Addr) *conn {
	for a != nil {
		if own, is := a.(*address); is {
			return own.conn
		}
		wrapped, is := a.(interface{ Unwrap() net.Addr })
		if !is {
			return nil
		}
		a = wrapped.Unwrap()
	}
	return nil
}

// Authenticated says that a call's caller has shown a credential that is accepted, or needs none there. Its connection counts no
// more from then on; assign has its holder count it (nil: it is nobody's). The error is assign's. What came through no Limiter is left
// alone.
func Authenticated(ctx context.Context, assign Assign) error {
	c := connOf(ctx)
	if c == nil {
		return nil
	}
	if err := c.assign(assign); err != nil {
		return err
	}
	c.authenticated()
	return nil
}
