package budget

import "time"

// workBurst is a period. A credential or an identity may use the work of this period at once. The period is long
// because clients begin with large requests.
const workBurst = 25 * time.Second

// Work counts the cost of handling frames of a connection, in units of about 1 µs. Work returns the time for which the
// caller must not read the connection; 0: the caller may read on. The units count for the credential (Limits.Work). A
// connection is proven if its credential is bound to a Pod, or if it comes from a known workload. Units of other
// connections also count for the identity (Limits.WorkInAll), so a caller gains nothing by many credentials. An unused
// credential may use the work of 25 s at once. Work does not block.
func (e *Entry) Work(units int) (wait time.Duration) {
	if e == nil {
		return 0
	}
	l := e.ledger
	l.refreshKnown(e.holder.Identity, func(a *account) bool { return !a.proven(e.holder) })
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	c, a := e.credential, e.credential.account
	wait = c.work.reserve(now, units, l.cfg.Work)
	if !a.proven(e.holder) {
		wait = max(wait, a.work.reserve(now, units, l.cfg.WorkInAll+l.cfg.WorkPerKnown*len(a.known)))
	}
	return wait
}

// reserve counts units, and returns the time until all counted units are within the burst. The argument rate is the
// number of units per second.
func (p *pace) reserve(now time.Time, units, rate int) time.Duration {
	every := time.Second / time.Duration(rate)
	burst := int(workBurst / every)
	p.room(now, burst, every)
	p.used += units
	return time.Duration(max(0, p.used-burst)) * every
}
