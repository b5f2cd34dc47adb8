package web

import (
	"net"
	"sync"
	"time"

	"navarch.io/navarch/cmd/internal/sources"
	"navarch.io/navarch/store/obs"
)

// bounded is a listener with a maximum of open connections, in total and for each source (IPv4 address or IPv6 /64).
// Above the total limit, a new connection displaces the oldest connection of the source with the most connections. At
// the limit of its source, it displaces the oldest connection of that source. A client with many connections thus
// displaces its own connections, and other clients are answered at once.
type bounded struct {
	net.Listener
	ledger  *sources.Ledger
	clients *obs.Sampled // nil: nothing is logged
}

// bound limits the open connections of the listener l. The arguments total and perSource must be above 0.
func bound(l net.Listener, total, perSource int, clients *obs.Sampled) *bounded {
	return &bounded{Listener: l, ledger: sources.NewLedger(sources.Limits{Total: total, PerSource: perSource}), clients: clients}
}

// conn is a connection of a bounded listener.
type conn struct {
	net.Conn
	of    *bounded
	entry *sources.Entry
	once  sync.Once
}

// Busy implements sources.Holder. A connection never counts as busy, so the oldest one is displaced even if it is
// active.
func (c *conn) Busy(time.Time) (busy, younger bool) { return false, false }

// Accept implements net.Listener. If a limit is reached, it closes another connection.
func (b *bounded) Accept() (net.Conn, error) {
	inner, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, of: b}
	c.entry = b.ledger.Entry(c, inner.RemoteAddr())
	lost, _ := b.ledger.Enter(c.entry) // always ok: no connection is busy
	if old, is := lost.(*conn); is {
		if b.clients != nil {
			b.clients.Warn("too many HTTP connections: the oldest connection of one source was closed", "connections",
				obs.KeyListener, b.Addr().String(), obs.KeyPeer, old.RemoteAddr().String())
		}
		_ = old.Close() // the client sees the end
	}
	return c, nil
}

// Close implements net.Conn. The connection then no longer counts as open.
func (c *conn) Close() error {
	c.once.Do(func() { c.of.ledger.Leave(c.entry) })
	return c.Conn.Close()
}
