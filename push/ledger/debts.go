package ledger

import (
	"slices"
	"sync"
	"time"
)

// maxDebts is the number of debts of one stream above which debts at evicted changes are dropped. The unevicted changes
// of both lanes fit.
const maxDebts = 2 * maxChanges

// Debts are the changes that one stream's client has not acknowledged. The zero value is empty. Any goroutine may call
// its methods.
type Debts struct {
	mu    sync.Mutex // a leaf
	parts []*Part    // oldest first
	since time.Time  // when the oldest debt was taken
	over  bool       // the stream has ended
}

// Owe takes a debt; nil: none. now is the time of the notification. A stream that has ended takes no debts.
func (d *Debts) Owe(p *Part, now time.Time) {
	if p == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	if len(d.parts) >= maxDebts {
		d.parts = slices.DeleteFunc(d.parts, func(old *Part) bool { return old.change.evicted.Load() })
	}
	if len(d.parts) == 0 {
		d.since = now
	}
	p.affected.Add(1)
	p.change.left.Add(1)
	p.share.due()
	d.parts = append(d.parts, p)
}

// Len returns the number of debts.
func (d *Debts) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.parts)
}

// Pay ends the n oldest debts: the client is up to date with the sets of their changes. refused reports whether the
// client refuses a version of a revision at or after the given one.
func (d *Debts) Pay(n int, now time.Time, refused func(since int64) bool) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n = min(n, len(d.parts))
	for _, p := range d.parts[:n] {
		if refused(p.change.first) {
			p.refused.Add(1)
		} else {
			p.took.add(now.Sub(p.change.since))
		}
		p.settled()
	}
	d.parts, d.since = slices.Delete(d.parts, 0, n), now
	if len(d.parts) == 0 && cap(d.parts) > 8 {
		d.parts = nil
	}
}

// Leave ends all debts of a stream that ends.
func (d *Debts) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.parts {
		p.gone.Add(1)
		p.settled()
	}
	d.parts, d.over = nil, true
}

// Owes reports whether a debt is at one of the selected changes, and since when the client is not up to date.
func (d *Debts) Owes(of func(*Change) bool) (since time.Time, owes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, slices.ContainsFunc(d.parts, func(p *Part) bool { return of(p.change) })
}
