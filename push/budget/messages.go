package budget

import "fmt"

// ErrMessages is why a connection ends that has most of what clients have begun to send and not completed, or a stream that has most of
// what waits to be handled. It matches ErrExhausted.
var ErrMessages = fmt.Errorf("%w: messages that are not complete, or wait", ErrExhausted)

// Hold counts bytes of messages that are kept because they are not complete (of a connection's ledger), or wait to be handled (of a
// stream's); negative: they are no longer. Where a credential, an identity or all together have more of them than may be, the entry that has
// most ends, with ErrMessages; it may be this one.
func (e *Entry) Hold(bytes int) {
	if e == nil {
		return
	}
	l := e.ledger
	l.learn(e.holder.Identity, func(a *account) bool { return a.held >= l.cfg.Messages/2 })
	l.mu.Lock()
	e.hold(bytes)
	loser := (*Entry)(nil)
	if bytes > 0 {
		loser = l.largest(e)
	}
	if loser != nil {
		loser.drop()
		loser.remove()
	}
	l.mu.Unlock()
	if loser != nil {
		loser.end(ErrMessages)
	}
}

// What follows is called with the lock held.

func (e *Entry) hold(bytes int) {
	if !e.dropped {
		e.held += bytes
		e.credential.held += bytes
		e.credential.account.held += bytes
		e.ledger.held += bytes
	}
}

// drop counts nothing of what a connection keeps any more.
func (e *Entry) drop() {
	e.hold(-e.held)
	e.dropped = true
}

// largest is the connection that has to end because of what e keeps; nil: none.
func (l *Ledger) largest(e *Entry) (most *Entry) {
	c := e.credential
	a := c.account
	look := func(c *credential) {
		for at := c.streams.Front(); at != nil; at = at.Next() {
			if other := at.Value.(*Entry); most == nil || other.held > most.held {
				most = other
			}
		}
	}
	switch {
	case c.held > l.cfg.MessagesPerCredential:
		look(c)
	case a.held > l.cfg.Messages+l.cfg.MessagesPerKnown*len(a.known):
		for _, c := range a.credentials {
			look(c)
		}
	case l.held > l.cfg.MessagesInAll:
		for _, a := range l.accounts {
			for _, c := range a.credentials {
				look(c)
			}
		}
	}
	return most
}
