package preauth

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Listen wraps inner, the listener of the limiter's address, and starts to accept connections. Call it once for a
// limiter. The limiter has a limited number of places. Accept of the result returns only connections that occupy a
// place, and errors of inner. After Close of the result, Accept returns net.ErrClosed. Close closes inner and the
// connections that wait for a place.
func (l *Limiter) Listen(inner net.Listener) net.Listener {
	b := &listener{Listener: inner, limiter: l, come: make(chan *conn), served: make(chan accepted), closed: make(chan struct{})}
	go b.accept()
	go b.admit()
	return b
}

type listener struct {
	net.Listener
	limiter *Limiter
	come    chan *conn    // connections that need a place
	served  chan accepted // results for Accept
	closed  chan struct{}
	once    sync.Once
}

// accepted is one result of Accept.
type accepted struct {
	conn *conn
	err  error
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.served:
		if a.err != nil {
			return nil, a.err
		}
		return a.conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// accept accepts connections from the kernel and passes them to admit.
func (l *listener) accept() {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			if !l.deliver(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		c := l.limiter.conn(inner)
		select {
		case l.come <- c:
		case <-l.closed:
			inner.Close()
			return
		}
	}
}

// deliver passes a result to Accept. It returns false if the listener is closed.
func (l *listener) deliver(a accepted) bool {
	select {
	case l.served <- a:
		return true
	case <-l.closed:
		return false
	}
}

// admit assigns places to connections. If a connection of a shared source (Limits.Shared) gets no place, it waits. At
// most Limits.Waiting connections wait, in the order of their arrival. All other connections that get no place are
// closed.
func (l *listener) admit() {
	var wait []*conn
	of := map[netip.Prefix]int{} // waiting connections by source
	// A waiting connection may displace a connection that is no longer busy. No event reports that a connection stops
	// being busy, so every tick tries again.
	again := time.NewTicker(max(l.limiter.await()/10, time.Millisecond))
	defer again.Stop()
	for {
		var tick <-chan time.Time
		if len(wait) > 0 {
			tick = again.C
		}
		select {
		case c := <-l.come:
			switch {
			case of[c.entry.Source()] == 0 && c.enter(): // waiting connections of its source come first
				l.serve(c)
			case c.shared && len(wait) < l.limiter.limits.Waiting:
				wait = append(wait, c)
				of[c.entry.Source()]++
			default:
				l.limiter.refuse(noRoom, c)
				c.Conn.Close() // the client sees the end
			}
		case <-l.limiter.left:
		case <-tick:
		case <-l.closed:
			for _, c := range wait {
				c.Conn.Close()
			}
			return
		}
		for len(wait) > 0 && wait[0].enter() {
			l.serve(wait[0])
			if source := wait[0].entry.Source(); of[source] == 1 {
				delete(of, source)
			} else {
				of[source]--
			}
			wait[0] = nil
			wait = wait[1:]
		}
		l.limiter.waiting.Store(int64(len(wait)))
	}
}

// serve starts the time limit of a connection, and passes the connection to Accept.
func (l *listener) serve(c *conn) {
	c.begin()
	if !l.deliver(accepted{conn: c}) {
		c.Close()
	}
}

// conn wraps an accepted connection, which has no place yet.
func (l *Limiter) conn(inner net.Conn) *conn {
	c := &conn{Conn: inner, of: l, gone: make(chan struct{}), known: make(chan struct{})}
	c.address = &address{Addr: inner.RemoteAddr(), conn: c}
	c.entry = l.ledger.Entry(c, inner.RemoteAddr())
	c.shared = l.ledger.Shared(c.entry)
	c.wakes(leastWaiting)
	return c
}
