package web

import (
	"net"
	"sync"
	"time"

	"navarch.io/navarch/cmd/internal/sources"
	"navarch.io/navarch/store/obs"
)

// bounded is a listener whose open connections are bounded, in all and from one source. A connection that comes is always
// taken: where there is no room for it, the oldest of the source that has most is closed. So whoever opens many closes their
// own, and one that comes from elsewhere finds an answer at once.
type bounded struct {
	net.Listener
	ledger  *sources.Ledger
	clients *obs.Sampled // nil: nothing is logged
}

func bound(l net.Listener, total, perSource int, clients *obs.Sampled) *bounded {
	return &bounded{Listener: l, ledger: sources.NewLedger(sources.Limits{Total: total, PerSource: perSource}), clients: clients}
}

// conn is one of a bounded listener's.
type conn struct {
	net.Conn
	of    *bounded
	entry *sources.Entry
	once  sync.Once
}

// Busy implements sources.Holder: the oldest goes, whatever it does.
func (c *conn) Busy(time.Time) (busy, younger bool) { return false, false }

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	inner, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, of: b}
	c.entry = b.ledger.Entry(c, inner.RemoteAddr())
	lost, _ := b.ledger.Enter(c.entry) // nobody is busy: it has a place
	if old, is := lost.(*conn); is {
		if b.clients != nil {
			b.clients.Warn("too many HTTP connections: the oldest of the source that has most was closed", "connections",
				obs.KeyListener, b.Addr().String(), obs.KeyPeer, old.RemoteAddr().String())
		}
		_ = old.Close() // its client sees that it ended
	}
	return c, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { c.of.ledger.Leave(c.entry) })
	return c.Conn.Close()
}
