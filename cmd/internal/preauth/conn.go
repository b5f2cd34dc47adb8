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

// conn is one connection. It is unauthenticated until its client certificate is admitted (Credentials), or until
// Authenticated succeeds for one of its calls. Until then it occupies a place, of which the Limiter has a limited
// number.
type conn struct {
	net.Conn
	of      *Limiter
	address *address
	entry   *sources.Entry
	shared  bool          // its source (the client's network) is in Limits.Shared
	began   int64         // the time at which it requested its place; Unix nanoseconds
	least   int           // number of bytes that wakes its reader (method wakes); 0: not set
	gone    chan struct{} // closed when the connection closes

	shown   atomic.Bool   // a credential was accepted
	known   chan struct{} // closed when a credential was accepted
	read    atomic.Int64  // bytes that were read before a credential was accepted
	working atomic.Bool   // a step of its handshake is computed, or waits for its turn
	step    atomic.Int64  // end of the last step of its handshake, in Unix nanoseconds; 0: no step has ended
	calls   atomic.Int32  // calls before a credential was accepted
	headers atomic.Int64  // bytes of the headers of these calls

	assigning sync.Mutex // held during a call of Assign for the connection, and never while mu is held

	mu       sync.Mutex // guards the fields below
	deadline *time.Timer
	ended    bool
	lost     bool   // another connection got its place
	holder   Holder // nil: no Assign has returned a Holder for it

	messages partial.Messages // incomplete messages of its client
}

// begin starts the time limit for the first credential.
func (c *conn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended { // another connection may have displaced it already
		c.wakes(headerSize)
		c.deadline = time.AfterFunc(c.of.limits.Credential, func() { c.end(tooLate) })
	}
}

// Read implements net.Conn. Bytes beyond Limits.Bytes stay in the kernel until a credential is accepted. The connection
// does not end at once, because a call whose headers have arrived may contain a credential.
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

// Write implements net.Conn. After an unauthenticated connection has ended, writes fail. If writes succeeded, the
// client would receive the TLS alert close_notify. It would see the end of the connection before the connection's place
// is free (Close).
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

// await waits until a credential is accepted, for the time Limiter.await at most. The bytes read so far may contain a
// credential that is being verified. Verification takes milliseconds, unless the issuer's keys have to be fetched. If
// no credential is accepted in time, await ends the connection. The argument cause is counted and logged.
//
// If the client has not begun a call, await ends the connection at once. gRPC handles all bytes that it has read before
// it reads further bytes. Without a call, the client's header list is therefore unfinished or too long for gRPC.
func (c *conn) await(cause reason) error {
	if c.calls.Load() == 0 {
		c.end(cause)
		return net.ErrClosed
	}
	timer := time.NewTimer(c.of.await())
	defer timer.Stop()
	select {
	case <-c.known:
		return nil
	case <-c.gone:
	case <-timer.C:
		c.end(cause)
	}
	return net.ErrClosed
}

// RemoteAddr implements net.Conn. gRPC passes the address to calls, and connOf finds the connection by the address.
func (c *conn) RemoteAddr() net.Addr { return c.address }

// Busy implements sources.Holder. A connection is busy while a step of its handshake is computed or waits for its turn,
// and for Limits.Progress after each step.
//
// A connection of a shared source (Limits.Shared) is also busy for a fixed time (Limiter.place) after it requested its
// place, because other connections wait for its place. Steps of the handshake do not prolong the fixed time. So the
// waiting connections get places in time. The result younger is true during the fixed time. It means that all younger
// connections of the source are busy too, because their fixed times end later.
func (c *conn) Busy(now time.Time) (busy, younger bool) {
	within := func(since int64, patience time.Duration) bool {
		return since != 0 && now.Sub(time.Unix(0, since)) < patience
	}
	if c.shared && within(c.began, c.of.place()) {
		return true, true
	}
	return c.working.Load() || within(c.step.Load(), c.of.limits.Progress), false
}

// enter requests a place for the connection. If another connection loses its place to this one, enter closes the other
// connection. It returns false if this connection gets no place.
func (c *conn) enter() bool {
	c.began = time.Now().UnixNano()
	lost, ok := c.of.ledger.Enter(c.entry)
	if other, is := lost.(*conn); is {
		other.lose()
	}
	return ok
}

// lose closes the connection after the ledger assigned its place to another connection. The connection closes at once,
// without the delay of the method keeps, because the ledger no longer counts this connection.
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

// authenticated marks the connection as authenticated, and frees its place.
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

// end closes the connection, and counts and logs the cause. It does nothing if the connection has ended, or if a
// credential was accepted on it.
func (c *conn) end(cause reason) {
	c.mu.Lock()
	first := !c.ended && !c.shown.Load()
	c.mu.Unlock()
	if !first {
		return
	}
	c.of.refuse(cause, c)
	_ = c.Close() // the client sees the end
}

// Close implements net.Conn. The connection may occupy its place for some time after Close (method keeps). The client
// sees the end only after this time. A client that saw the end earlier would reconnect and wait for a second place.
// Bytes that were written before Close are sent at once.
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
	return c.Conn.SetDeadline(past) // ends pending reads and writes
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// Assign registers a connection with the holder of its credential. After a success, Assign is not called again for the
// connection. After an error, it may be called again. The argument end closes the connection, and may be called from
// any goroutine. If the error is nil, the Holder must not be nil. The error reports why the connection is refused, such
// as too many connections of the holder.
type Assign func(end func()) (Holder, error)

// Holder receives the costs of one authenticated connection. It is implemented by *budget.Entry of push/budget. Several
// goroutines may call its methods at once. The connection blocks during a call.
type Holder interface {
	// Hold adds a number of bytes of incomplete messages; a negative number removes them. It may close connections,
	// even the connection that calls it. It may still be called after Leave.
	Hold(bytes int)
	// Work adds the cost of handling frames, in units of about a microsecond. It returns the time for which the
	// connection must not be read; 0 or less: no pause.
	Work(units int) (wait time.Duration)
	// Leave is called once, when the connection closes. It must not call the function end of Assign.
	Leave()
}

// assign calls the function assign, which registers the connection with a holder. If the function is nil, or if the
// connection has a holder or has ended, the method does nothing. The error is that of the function. Concurrent calls
// wait for one another, so that a stream is never served while a refusal of its connection is still pending.
func (c *conn) assign(assign Assign) error {
	if assign == nil {
		return nil
	}
	c.assigning.Lock()
	defer c.assigning.Unlock()
	c.mu.Lock()
	done := c.holder != nil || c.ended
	c.mu.Unlock()
	if done {
		return nil
	}
	holder, err := assign(func() { _ = c.Close() })
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		holder.Leave()
	} else {
		c.holder = holder
	}
	return nil
}

// keeps returns the time for which the place stays occupied after the connection has ended. It is the time until
// another connection could displace this one (Busy). So a client that ends its connections early, or is refused early,
// causes no more handshakes than a client that stays. If the result is 0 or less, the place is free at once. The result
// is 0 if no step of the handshake was computed.
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

// free frees the place, and wakes the listener, because connections may wait for a place.
func (c *conn) free() {
	c.of.ledger.Leave(c.entry)
	select {
	case c.of.left <- struct{}{}:
	default: // a signal is already pending
	}
}

// address is a peer's address with a reference to the peer's connection. gRPC passes the address to calls.
type address struct {
	net.Addr
	conn *conn
}

// connOf returns the connection of a call. It returns nil if the listener of a Limiter did not accept the connection.
func connOf(ctx context.Context) *conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	return behind(p.Addr)
}

// behind returns the connection to which a peer's address belongs, also if the address is wrapped. (Package push/serve
// wraps addresses.) It returns nil if the address did not come from the listener of a Limiter.
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

// Authenticated marks the connection of a call as authenticated. Call it when the caller has shown an accepted
// credential, or needs no credential. From then on the limits of unauthenticated connections do not apply to the
// connection.
//
// The function assign registers the connection with its holder. It is not called if an earlier Assign succeeded. If it
// is nil, the connection gets no holder. If it fails, Authenticated returns its error, and the connection stays
// unauthenticated. For a connection that no Limiter accepted, Authenticated does nothing and returns nil.
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
