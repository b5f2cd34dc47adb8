package ledger

import (
	"slices"
	"sync"
	"time"
)

// maxDebts limits the debts of one stream. At this number, Owe first removes the debts for changes that the ledger no
// longer keeps (evicted changes). The ledger keeps at most maxDebts changes.
const maxDebts = 2 * maxChanges

// Debts holds the debts of one stream: the changes of which the stream was notified and which its client has not
// acknowledged. The zero value is empty and ready for use. It is safe for concurrent use.
type Debts struct {
	mu    sync.Mutex // acquired before Ledger.mu, and held during calls of Ledger.Report's deliver
	parts []*Part    // one for each debt, oldest first
	since time.Time  // time of the last payment; if it left no debt, time of the next debt
	over  bool       // the stream has ended
}

// Owe adds a debt for the Part p, which Ledger.Debt returned. The argument now is the time of the notification. Owe
// does nothing if p is nil or the stream has ended (Leave).
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

// Pay removes the n oldest debts, or all if there are fewer, because the client has answered their changes. The
// argument now is the time of the answer. The argument n must not be negative. If the function refused returns true for
// a change's first revision, the change counts as refused. If it returns false, the change counts as acknowledged. The
// function refused must report whether the client refuses a version from the revision since or a later one. Pay calls
// it with the lock held, so it must not call methods of d.
func (d *Debts) Pay(n int, now time.Time, refused func(since int64) bool) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n = min(n, len(d.parts))
	for _, p := range d.parts[:n] {
		if refused(p.change.span.First) {
			p.refused.Add(1)
		} else {
			p.acknowledged(now)
		}
		p.settled()
	}
	d.parts, d.since = slices.Delete(d.parts, 0, n), now
	if len(d.parts) == 0 && cap(d.parts) > 8 {
		d.parts = nil
	}
}

// Leave removes all debts because the stream ends, and counts them as gone. Later calls of Owe and Pay have no effect.
func (d *Debts) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.parts {
		p.gone.Add(1)
		p.settled()
	}
	d.parts, d.over = nil, true
}

// Owes reports whether there is a debt for a change for which the function filter returns true. If there is such a
// debt, the result since is the time from which the client is behind. It is the time of the last payment. If that
// payment left no debt, it is the time of the next debt. If the result owes is false, since has no meaning. Owes calls
// filter with the lock held.
func (d *Debts) Owes(filter func(*Change) bool) (since time.Time, owes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, slices.ContainsFunc(d.parts, func(p *Part) bool { return filter(p.change) })
}
