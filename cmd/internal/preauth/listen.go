package preauth

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Listen wraps the address's listener. Its Accept gives connections that have a place.
func (l *Limiter) Listen(inner net.Listener) net.Listener {
	b := &listener{Listener: inner, limiter: l, come: make(chan *conn), served: make(chan accepted), closed: make(chan struct{})}
	go b.accept()
	go b.admit()
	return b
}

type listener struct {
	net.Listener
	limiter *Limiter
	come    chan *conn    // that want a place
	served  chan accepted // to Accept
	closed  chan struct{}
	once    sync.Once
}

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

// accept takes connections from the kernel.
func (l *listener) accept() {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			if !l.give(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
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

// give hands something to Accept; false: the listener was closed.
func (l *listener) give(a accepted) bool {
	select {
	case l.served <- a:
		return true
	case <-l.closed:
		return false
	}
}

// admit gives connections their places. Those of shared sources that find none wait for one, in the order in which they came.
func (l *listener) admit() {
	var wait []*conn
	of := map[netip.Prefix]int{}                                         // how many wait, by source
	again := time.NewTicker(max(l.limiter.await()/10, time.Millisecond)) // who makes no progress may lose its place meanwhile
	defer again.Stop()
	for {
		var tick <-chan time.Time
		if len(wait) > 0 {
			tick = again.C
		}
		select {
		case c := <-l.come:
			switch {
			case of[c.entry.Source()] == 0 && c.enter(): // behind those of its source that wait
				l.serve(c)
			case c.shared && len(wait) < l.limiter.limits.Waiting:
				wait = append(wait, c)
				of[c.entry.Source()]++
			default:
				l.limiter.refuse(noRoom, c)
				c.Conn.Close() // its client sees that it ended
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

func (l *listener) serve(c *conn) {
	c.begin()
	if !l.give(accepted{conn: c}) {
		c.Close()
	}
}

// conn makes one of what was accepted. It has no place yet.
func (l *Limiter) conn(inner net.Conn) *conn {
	c := &conn{Conn: inner, of: l, gone: make(chan struct{}), known: make(chan struct{})}
	c.address = &address{Addr: inner.RemoteAddr(), conn: c}
	c.entry = l.ledger.Entry(c, inner.RemoteAddr())
	c.shared = l.ledger.Shared(c.entry)
	c.wakes(leastWaiting)
	return c
}
