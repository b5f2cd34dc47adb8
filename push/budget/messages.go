package budget

// ErrMessages is the error with which a connection or stream ends because it has the most bytes of incomplete or
// waiting messages (Entry.Hold). It matches ErrExhausted.
var ErrMessages error = exhausted("the bytes of incomplete or waiting messages exceed their limit")

// Hold counts bytes of messages that a replica keeps in memory. Negative bytes are released. An Entry of a connection
// counts incomplete messages, and an Entry of a stream counts requests in progress.
//
// If added bytes exceed the limit of e's credential, of its identity, or of the ledger, one entry ends. It is the entry
// with the most bytes of that credential, identity or ledger, and may be e. The ledger calls the entry's end function
// with ErrMessages. An entry counts nothing after its Leave, or after it ended with ErrMessages. A nil entry never
// counts.
func (e *Entry) Hold(bytes int) {
	if e == nil {
		return
	}
	l := e.ledger
	l.refreshKnown(e.holder.Identity, func(a *account) bool { return a.held >= l.cfg.Messages/2 })
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

// Callers of the functions below must hold the ledger's lock.

// hold adds bytes to all counts of messages, unless they were dropped.
func (e *Entry) hold(bytes int) {
	if !e.dropped {
		e.held += bytes
		e.credential.held += bytes
		e.credential.account.held += bytes
		e.ledger.held += bytes
	}
}

// drop releases all bytes of messages of an entry. Further messages of the entry are not counted.
func (e *Entry) drop() {
	e.hold(-e.held)
	e.dropped = true
}

// largest returns the entry that must end because of e's messages. It returns nil if no limit is exceeded, or if all
// entries with messages have ended already.
func (l *Ledger) largest(e *Entry) (most *Entry) {
	c := e.credential
	a := c.account
	scan := func(c *credential) {
		for at := c.streams.Front(); at != nil; at = at.Next() {
			if other := at.Value.(*Entry); most == nil || other.held > most.held {
				most = other
			}
		}
	}
	switch {
	case c.held > l.cfg.MessagesPerCredential:
		scan(c)
	case a.held > l.cfg.Messages+l.cfg.MessagesPerKnown*len(a.known):
		for _, c := range a.credentials {
			scan(c)
		}
	case l.held > l.cfg.MessagesInAll:
		for _, a := range l.accounts {
			for _, c := range a.credentials {
				scan(c)
			}
		}
	}
	return most
}
