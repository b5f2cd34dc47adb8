// Package sources limits the number of places that clients occupy, in total and for each source. A place is the right
// to use a limited resource, for example one open connection. A source is an IPv4 address or an IPv6 /64, because one
// host may have a whole /64. When no place is free, generally the source with the most places loses one (Ledger.Enter).
//
// Owns: the counts. Reads: addresses of peers. Never: closes a connection; trusts data that a client sends.
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

// Limits are the limits of a Ledger, in places. A zero Total permits no place.
type Limits struct {
	Total     int // maximum number of places
	PerSource int // maximum for one source outside of Shared; 0 permits no place
	// Shared are address ranges of gateways and NAT, with many clients behind one address. A source that overlaps
	// such a range may have Total places. The Ledger keeps the slice, which must not change.
	Shared []netip.Prefix
	// Known is the number of places that a known source (Ledger.Know) keeps. A known source with at most Known places
	// is protected. It loses a place to another source only if all sources with places are protected.
	Known int
}

// Holder occupies a place, for example as a connection.
type Holder interface {
	// Busy reports whether the holder is being served. A busy holder never loses its place to a new holder of the same
	// source. It loses its place to a holder of another source only if all holders of its own source are busy. younger
	// reports whether all holders of the same source that entered later are busy too. younger has no effect if busy is
	// false. The ledger calls Busy with its lock held, so Busy must not call the ledger.
	Busy(now time.Time) (busy, younger bool)
}

// Entry is the record of one holder in a ledger. Ledger.Entry creates it.
type Entry struct {
	holder Holder
	source netip.Prefix
	place  *list.Element // in its source's list; nil: it has no place
	left   bool          // Leave was called or the entry was displaced: it never gets a place again
}

// Source returns the source of the entry's holder: the IPv4 address as /32, or the /64 of the IPv6 address. It is the
// zero Prefix if the holder's address has no IP and port.
func (e *Entry) Source() netip.Prefix { return e.source }

// Ledger counts the occupied places. NewLedger creates it. It is safe for concurrent use.
type Ledger struct {
	limits Limits

	mu      sync.Mutex // a leaf lock, except that Holder.Busy is called under it
	places  int        // occupied places
	sources map[netip.Prefix]*source
	known   map[netip.Prefix]int // calls of Know minus calls of Forget, for each source
}

// source lists the places of one source: *Entry values, the oldest first.
type source struct{ list.List }

// NewLedger returns a Ledger without entries and without known sources.
func NewLedger(l Limits) *Ledger {
	return &Ledger{limits: l, sources: map[netip.Prefix]*source{}, known: map[netip.Prefix]int{}}
}

// Entry returns an entry, without a place, for a holder with the given address. All addresses without an IP and a port
// share one source. The address must not be nil.
func (l *Ledger) Entry(h Holder, from net.Addr) *Entry {
	return &Entry{holder: h, source: remote.Host(from)}
}

// Enter assigns a place to the entry, and displaces another entry if no place is free. lost is the holder of the
// displaced entry, which the caller has to close. lost is nil if no entry was displaced. ok is false if the entry gets
// no place: no entry may be displaced, or the entry has left or was displaced before. For an entry with a place Enter
// does nothing and returns nil, true.
//
// At the limit of its source, the entry displaces the oldest entry of its source that is not busy. At the total limit,
// it displaces an entry of the source with the most places: the oldest that is not busy, or else the oldest. If that
// source does not have more places than the entry's own source, Enter displaces an entry of the own source instead: the
// oldest that is not busy. Without such an entry ok is false.
//
// A known source with at most Limits.Known places is protected. At the total limit, entries of protected sources are
// not displaced, unless all sources with places are protected. A known source with fewer than Limits.Known places may
// displace an entry of an unprotected source even if that source does not have more places.
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

// Leave frees the entry's place, if it has one. The entry never gets a place again. Repeated calls, and calls for a
// displaced entry, do nothing.
func (l *Ledger) Leave(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(e)
}

// Know records that a holder of e's source is authenticated, which makes the source known. e's place does not change.
// Each call needs one call of Forget, when that holder ends.
func (l *Ledger) Know(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[e.source]++
}

// Forget reverts one call of Know for e's source.
func (l *Ledger) Forget(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[e.source]--; l.known[e.source] <= 0 {
		delete(l.known, e.source)
	}
}

// Taken returns the number of occupied places.
func (l *Ledger) Taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.places
}

// Known returns the number of sources with more calls of Know than of Forget.
func (l *Ledger) Known() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.known)
}

// Shared reports whether an entry's source overlaps a range of Limits.Shared.
func (l *Ledger) Shared(e *Entry) bool {
	return slices.ContainsFunc(l.limits.Shared, func(p netip.Prefix) bool { return p.Overlaps(e.source) })
}

// remove frees the place of an entry and marks the entry as left. The caller holds l.mu.
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

// loser returns the entry that e displaces. The result is nil if a place is free or no entry may be displaced. room
// reports whether a place is free. The caller holds l.mu.
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

// most returns the source with the most places among those that may lose a place to other sources. If all sources are
// protected (known, with at most Limits.Known places), it returns the protected source with the most places, and true.
// The source is nil if no place is occupied. The caller holds l.mu.
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

// oldest returns the source's oldest entry. If busy is false, it skips busy entries. The result is nil if there is no
// such entry.
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
