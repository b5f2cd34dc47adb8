package callers

import (
	"errors"
	"net"
	"sync"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/cmd/internal/preauth"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/obs"
)

// open is the set of open connections whose callers have an identity. It has the connections to all gRPC addresses of
// this process.
type open struct {
	mu  sync.Mutex // no other lock is taken under it
	all map[*connection]struct{}
}

// connection is an open connection. It belongs to the caller who first showed a credential on it.
type connection struct {
	*budget.Entry
	open *open
	who  attest.Caller
	from string // the client's address
	end  func() // closes the connection
}

// Leave implements preauth.Holder. It is called when the connection closes. The connection then no longer counts.
func (c *connection) Leave() {
	c.open.mu.Lock()
	delete(c.open.all, c)
	c.open.mu.Unlock()
	c.Entry.Leave()
}

// assign returns a function that counts a connection for the caller's identity, or for the client's address if the
// caller has no identity.
func (k *Callers) assign(who attest.Caller, from net.Addr) preauth.Assign {
	return func(end func()) (preauth.Holder, error) {
		ledger, holder := k.connections, serve.Holder(who, from.String())
		if who.ID.IsZero() {
			ledger, holder.Identity = k.sources, "no credential, from "+holder.From.String()
		}
		entry, err := ledger.Enter(holder, func(why error) {
			what := "connections"
			if errors.Is(why, budget.ErrMessages) {
				what = "messages"
			}
			obs.Bounded.WithLabelValues(what).Inc()
			k.clients.Warn("a connection is closed: its identity has reached a limit",
				what, obs.KeyIdentity, holder.Identity, obs.KeyPeer, from.String(), obs.KeyError, why)
			end()
		})
		if err != nil || who.ID.IsZero() {
			return entry, err
		}
		c := &connection{Entry: entry, open: &k.open, who: who, from: from.String(), end: end}
		k.open.mu.Lock()
		if k.open.all == nil {
			k.open.all = map[*connection]struct{}{}
		}
		k.open.all[c] = struct{}{}
		k.open.mu.Unlock()
		if err := k.Refused(who); err != nil { // an earlier Recheck did not know this connection
			c.Leave()
			return nil, err
		}
		return c, nil
	}
}

// Recheck closes the connections whose callers are refused now (Refused), and returns their number. Connections without
// an identity are not checked. Recheck checks only the first credential of each connection. The credentials of later
// calls are checked with these calls.
func (k *Callers) Recheck() (ended int) {
	k.open.mu.Lock()
	all := make([]*connection, 0, len(k.open.all))
	for c := range k.open.all {
		all = append(all, c)
	}
	k.open.mu.Unlock()
	for _, c := range all {
		if err := k.Refused(c.who); err != nil {
			ended++
			k.clients.Warn("a connection is closed: its caller is refused",
				"refused", obs.KeyIdentity, c.who.ID.String(), obs.KeyPeer, c.from, obs.KeyError, err)
			c.end()
		}
	}
	return ended
}
