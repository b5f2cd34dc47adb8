package budget

import "fmt"

// ErrMessages is the reason for the end of a connection with the most bytes of incomplete messages, or of a stream with
// the most bytes of waiting messages. It matches ErrExhausted.
var ErrMessages = fmt.Errorf("%w: messages that are not complete, or wait", ErrExhausted)

// Hold counts bytes of messages that are kept because they are incomplete (in a connection's ledger), or wait to be
// handled (in a stream's). Negative bytes are released. If a credential, an identity or all together exceed their
// bound, the entry with the most bytes ends with ErrMessages; it may be this one.
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

// The caller of the functions below holds the lock.

func (e *Entry) hold(bytes int) {
	if !e.dropped {
		e.held += bytes
		e.credential.held += bytes
		e.credential.account.held += bytes
		e.ledger.held += bytes
	}
}

// drop releases all messages of a connection, and counts no further ones.
func (e *Entry) drop() {
	e.hold(-e.held)
	e.dropped = true
}

// largest returns the entry that must end because of e's messages; nil if no bound is exceeded.
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
