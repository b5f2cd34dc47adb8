// Package sources bounds what clients hold of one thing, such as connections, in all and for each source, so that a source which takes much
// displaces only its own (issue 12, item 8). A source is an IPv4 address, or an IPv6 /64, all of which one host may have.
//
// Owns: the counts.  Reads: addresses of peers.  Never: closes anything itself; believes what a client says.
package sources

import (
	"container/list"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/store/remote"
)

// Limits of a Ledger.
type Limits struct {
	Total     int
	PerSource int
	// Shared are ranges of addresses behind each of which many clients are (gateways, NAT): such a source may have Total.
	Shared []netip.Prefix
	// Known is how many a source keeps at least, whatever other sources do, while it is known (Ledger.Know).
	Known int
}

// Holder is what has a place, a connection for instance.
type Holder interface {
	// Busy says that it is being worked for: it loses its place to sources that have fewer, and to nobody of its own source. younger: so are all
	// of its source that came later. It is called with the ledger's lock held.
	Busy(now time.Time) (busy, younger bool)
}

// Entry is a holder's in a ledger.
type Entry struct {
	holder Holder
	source netip.Prefix
	place  *list.Element // in its source's list; nil: it has none
	left   bool          // or lost: it gets no place any more
}

// Source is where its holder comes from.
func (e *Entry) Source() netip.Prefix { return e.source }

// Ledger counts. Safe for concurrent use.
type Ledger struct {
	limits Limits

	mu      sync.Mutex // a leaf, but for Holder.Busy
	places  int        // that are taken
	sources map[netip.Prefix]*source
	known   map[netip.Prefix]int // how many holders each source has that count no more (Know)
}

// source is one that has places: a list of *Entry, the oldest first.
type source struct{ list.List }

// NewLedger makes an empty one.
func NewLedger(l Limits) *Ledger {
	return &Ledger{limits: l, sources: map[netip.Prefix]*source{}, known: map[netip.Prefix]int{}}
}

// Entry makes one for a holder that comes from an address. It has no place yet.
func (l *Ledger) Entry(h Holder, from net.Addr) *Entry {
	return &Entry{holder: h, source: remote.Host(from)}
}

// Enter gives an entry a place. Where there is none free another one loses its place, and the caller has to close it (nil: nobody
// has to go): the oldest of the same source that is not busy, or, where not the source's bound is reached but the total, the
// oldest of the source that has most. false: there is no place, or the entry has left or lost.
func (l *Ledger) Enter(e *Entry) (lost Holder, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.left || e.place != nil {
		return nil, !e.left
	}
	loser, room := l.loser(e)
	switch {
	case room:
	case loser == nil:
		return nil, false
	default:
		l.remove(loser)
		lost = loser.holder
	}
	own := l.sources[e.source]
	if own == nil {
		own = &source{}
		l.sources[e.source] = own
	}
	e.place = own.PushBack(e)
	l.places++
	return lost, true
}

// Leave gives an entry's place back. It may be called again, and for one that has lost.
func (l *Ledger) Leave(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(e)
}

// Know says that a holder of e's source counts no more, because it has shown who it is, until Forget is called as often.
func (l *Ledger) Know(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[e.source]++
}

// Forget ends one Know.
func (l *Ledger) Forget(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[e.source]--; l.known[e.source] <= 0 {
		delete(l.known, e.source)
	}
}

// Taken is how many places are.
func (l *Ledger) Taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.places
}

// Known is how many sources are known.
func (l *Ledger) Known() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.known)
}

// Shared says whether an entry's source is in a range of Limits.Shared.
func (l *Ledger) Shared(e *Entry) bool {
	return slices.ContainsFunc(l.limits.Shared, func(p netip.Prefix) bool { return p.Overlaps(e.source) })
}

// remove takes an entry out. Called with the lock held.
func (l *Ledger) remove(e *Entry) {
	e.left = true
	if e.place == nil {
		return
	}
	own := l.sources[e.source]
	own.Remove(e.place)
	l.places--
	if e.place = nil; own.Len() == 0 {
		delete(l.sources, e.source)
	}
}

// loser is who has to lose its place to e; nil: nobody. room: there is a free one. Called with the lock held.
func (l *Ledger) loser(e *Entry) (loser *Entry, room bool) {
	own, bound := l.sources[e.source], l.limits.PerSource
	if own == nil {
		own = &source{}
	}
	if l.Shared(e) {
		bound = l.limits.Total
	}
	switch {
	case own.Len() >= bound:
		return own.oldest(false), false
	case l.places < l.limits.Total:
		return nil, true
	}
	most, protected := l.most()
	entitled := !protected && l.known[e.source] > 0 && own.Len() < l.limits.Known
	if most == nil || most == own || most.Len() <= own.Len() && !entitled {
		return own.oldest(false), false
	}
	if idle := most.oldest(false); idle != nil {
		return idle, false
	}
	return most.oldest(true), false
}

// most is the source that has most, of those that may lose to others. Where all are protected, because they are known and have
// few, it is of these.
func (l *Ledger) most() (most *source, protected bool) {
	var few *source
	for at, s := range l.sources {
		best := &most
		if l.known[at] > 0 && s.Len() <= l.limits.Known {
			best = &few
		}
		if *best == nil || s.Len() > (*best).Len() {
			*best = s
		}
	}
	if most == nil {
		return few, true
	}
	return most, false
}

// oldest is the entry that came first; busy ones count where busy is true.
func (s *source) oldest(busy bool) *Entry {
	now := time.Now()
	for at := s.Front(); at != nil; at = at.Next() {
		e := at.Value.(*Entry)
		works, younger := e.holder.Busy(now)
		switch {
		case busy || !works:
			return e
		case younger:
			return nil
		}
	}
	return nil
}
