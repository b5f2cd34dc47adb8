package web

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"navarch.io/navarch/store/obs"
)

// bounded is a listener whose open connections are bounded, in all and from one source. A connection that comes is always
// taken: where there is no room for it, the oldest of the source that has most is closed. So whoever opens many closes their
// own, and one that comes from elsewhere finds an answer at once.
type bounded struct {
	net.Listener
	total, perSource int
	clients          *obs.Sampled // nil: nothing is logged

	mu      sync.Mutex // a leaf
	open    int
	sources map[netip.Prefix][]*conn // open connections of each, the oldest first; none is empty
}

func bound(l net.Listener, total, perSource int, clients *obs.Sampled) *bounded {
	return &bounded{Listener: l, total: total, perSource: perSource, clients: clients, sources: map[netip.Prefix][]*conn{}}
}

// conn is one of a bounded listener's.
type conn struct {
	net.Conn
	of     *bounded
	source netip.Prefix
	once   sync.Once
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	inner, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, of: b, source: sourceOf(inner.RemoteAddr())}
	if old := b.enter(c); old != nil {
		if b.clients != nil {
			b.clients.Warn("too many HTTP connections: the oldest of the source that has most was closed", "connections",
				obs.KeyListener, b.Addr().String(), obs.KeyPeer, old.RemoteAddr().String())
		}
		_ = old.Close() // its client sees that it ended
	}
	return c, nil
}

// enter counts a connection, and returns the one that has to go for it; nil: there is room.
func (b *bounded) enter(c *conn) (old *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch own := b.sources[c.source]; {
	case len(own) >= b.perSource:
		old = own[0]
	case b.open >= b.total:
		most := 0
		for _, all := range b.sources {
			if len(all) > most {
				most, old = len(all), all[0]
			}
		}
	}
	if old != nil {
		b.remove(old)
	}
	b.open++
	b.sources[c.source] = append(b.sources[c.source], c)
	return old
}

// remove forgets a connection, if it is known. Called with the lock held.
func (b *bounded) remove(c *conn) {
	all := b.sources[c.source]
	at := slices.Index(all, c)
	if at < 0 {
		return
	}
	b.open--
	if all = slices.Delete(all, at, at+1); len(all) == 0 {
		delete(b.sources, c.source)
		return
	}
	b.sources[c.source] = all
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		c.of.remove(c)
		c.of.mu.Unlock()
	})
	return c.Conn.Close()
}

// sourceOf is whom a connection is counted for: an IPv4 address, or the /64 that one host has all of with IPv6. What has no
// IP address is one source.
func sourceOf(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := at.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	source, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return source
}
