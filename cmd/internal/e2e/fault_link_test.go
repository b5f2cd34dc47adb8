package e2e

import (
	"context"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rule describes the effect of a link on packets. The zero rule passes all of them.
type rule struct {
	hold   bool  // nothing passes, and nobody is told
	refuse bool  // new connections are closed at once
	rate   int   // bytes a second that the server's side may send, all connections together; 0: no limit
	slice  int   // largest piece that is passed on at once, bytes; 0: 32 KiB
	reset  int64 // a connection is reset after a random number of the server's bytes, at most this; 0: never
	resets int64 // so often; connections live afterwards
}

// link is a TCP address that leads to a server, and that a test can slow, hold and cut.
type link struct {
	address string
	network string
	to      string
	ctx     context.Context

	mu      sync.Mutex
	rule    rule
	changed chan struct{} // closed and replaced with the rule
	conns   map[net.Conn]bool
	left    map[bool]int64 // by direction (up: to the server): so many bytes pass, then everything is held
	held    chan struct{}  // closed when that has happened

	resets atomic.Int64
}

// connect makes a link to an address host:port, or to an etcd's endpoint that is a Unix socket.
func connect(t testing.TB, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{address: l.Addr().String(), network: "tcp", to: to, ctx: t.Context(), changed: make(chan struct{}), conns: map[net.Conn]bool{},
		left: map[bool]int64{}}
	if strings.HasPrefix(to, "unix") {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		k.network, k.to = "unix", u.Path
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { k.join(near) })
		}
	})
	t.Cleanup(func() { l.Close(); k.set(rule{refuse: true}); k.drop(); wg.Wait() })
	return k
}

// etcd returns the flag of a process that reaches its store over this link.
func (k *link) etcd() string { return "--etcd-endpoints=http://" + k.address }

// set replaces the rule. Held packets pass if the new rule permits.
func (k *link) set(r rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rule = r
	close(k.changed)
	k.changed = make(chan struct{})
}

// holdAfter lets n more bytes pass in one direction (up: to the server), and holds everything then. The channel is
// closed when that has happened.
func (k *link) holdAfter(n int64, up bool) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left[up], k.held = n, make(chan struct{})
	return k.held
}

// redirect leads new connections to another address.
func (k *link) redirect(to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.to = to
}

// drop ends all present connections; delayed bytes on them are lost.
func (k *link) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		c.Close()
	}
}

func (k *link) join(near net.Conn) {
	k.mu.Lock()
	refuse, to := k.rule.refuse, k.to
	k.mu.Unlock()
	if refuse {
		near.Close()
		return
	}
	far, err := net.Dial(k.network, to)
	if err != nil {
		near.Close()
		return
	}
	ctx, cancel := context.WithCancel(k.ctx)
	k.mu.Lock()
	k.conns[near], k.conns[far] = true, true
	k.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { k.carry(ctx, cancel, near, far, true) })
	both.Go(func() { k.carry(ctx, cancel, far, near, false) })
	// A carrier that waits for its rule learns from the other one, or from drop, that the connection is over.
	both.Wait()
	k.mu.Lock()
	delete(k.conns, near)
	delete(k.conns, far)
	k.mu.Unlock()
}

func (k *link) carry(ctx context.Context, cancel func(), from, to net.Conn, up bool) {
	defer from.Close()
	defer to.Close()
	defer cancel()
	k.mu.Lock()
	size, life, most := k.rule.slice, k.rule.reset, k.rule.resets
	k.mu.Unlock()
	if size == 0 {
		size = 32 << 10
	}
	if life > 0 {
		life = 1 + rand.Int64N(life)
	}
	buf := make([]byte, size)
	for {
		n, err := from.Read(buf)
		if n > 0 && !k.pass(ctx, n, up) {
			return
		}
		if life > 0 && !up {
			if life -= int64(n); life <= 0 && k.resets.Add(1) <= most {
				if tcp, ok := to.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				return
			}
		}
		if _, bad := to.Write(buf[:n]); err != nil || bad != nil {
			return
		}
	}
}

// pass waits until n bytes may go on; false: they never may.
func (k *link) pass(ctx context.Context, n int, up bool) bool {
	for {
		k.mu.Lock()
		if left, bounded := k.left[up]; bounded && !k.rule.hold {
			if k.left[up] = left - int64(n); k.left[up] < 0 {
				delete(k.left, up)
				k.rule.hold = true
				close(k.held)
			}
		}
		hold, rate, changed := k.rule.hold, k.rule.rate, k.changed
		k.mu.Unlock()
		if !hold {
			return up || rate == 0 || pace(ctx, time.Duration(n)*time.Second/time.Duration(rate))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// pace waits for the time that bytes need on the wire; false: ctx has ended.
func pace(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
