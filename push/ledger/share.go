package ledger

import (
	"sync/atomic"
	"time"
)

// Delivery describes how one change of configuration reached the proxies of one tenant at this replica.
type Delivery struct {
	Tenant       string
	Acknowledged int // clients that acknowledged
	Refused      int // clients that refuse a version of the change
	Gone         int // streams that ended before their client acknowledged
	Pending      int // clients that had not answered when the change was evicted; otherwise 0
	// Most is the time from the commit until 99 % of the affected proxies had acknowledged. Proxies that are gone are
	// excluded. The time is rounded up as in Counts.Until. It is 0 if fewer have acknowledged.
	Most time.Duration
}

// reports has the settings of Ledger.Report.
type reports struct {
	tenant  func(namespace string) string
	deliver func(Delivery)
}

// Report makes the ledger call deliver once for each change of configuration and each tenant. The call is made when all
// clients of the tenant have acknowledged or refused the change or are gone, or when the change is evicted. There is no
// call for a tenant without affected proxies. The argument tenant returns the tenant of a namespace. Any goroutine may
// call deliver, with locks held, so deliver must not block or call the ledger. Report must be called before the first
// change.
func (l *Ledger) Report(tenant func(namespace string) string, deliver func(Delivery)) {
	l.reports = &reports{tenant, deliver}
}

// share contains the Parts (counts of a namespace) of one tenant in a change. The methods due and settled of a nil
// share do nothing.
type share struct {
	tenant  string
	deliver func(Delivery)
	parts   []*Part
	left    atomic.Int64 // number of unpaid debts, plus one until the change is sealed
	done    atomic.Bool
}

// divide makes the shares of a new change, one for each tenant. It does nothing if r is nil.
func (c *Change) divide(r *reports) {
	if r == nil {
		return
	}
	of := map[string]*share{}
	for namespace, p := range c.parts {
		tenant := r.tenant(namespace)
		s := of[tenant]
		if s == nil {
			s = &share{tenant: tenant, deliver: r.deliver}
			s.left.Store(1)
			of[tenant], c.shares = s, append(c.shares, s)
		}
		p.share, s.parts = s, append(s.parts, p)
	}
	c.bytes += 128 * len(c.shares)
}

// due adds one debt.
func (s *share) due() {
	if s != nil {
		s.left.Add(1)
	}
}

// settled ends one debt, or the publication.
func (s *share) settled() {
	if s != nil && s.left.Add(-1) == 0 {
		s.report()
	}
}

// report reports the delivery, at the first call. A share without affected proxies is not reported.
func (s *share) report() {
	if s.done.Swap(true) {
		return
	}
	var sum Counts
	for _, p := range s.parts {
		sum = sum.Plus(p.counts(false))
	}
	if sum.Affected == 0 {
		return
	}
	d := Delivery{Tenant: s.tenant, Acknowledged: sum.Acknowledged(), Refused: sum.Refused, Gone: sum.Gone, Pending: sum.Pending()}
	if took, ok := sum.Until(0.99); ok {
		d.Most = took
	}
	s.deliver(d)
}
