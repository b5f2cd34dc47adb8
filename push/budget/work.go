package budget

import "time"

// workBurst is the time of unused work that a credential or an identity may use at once, because clients begin with
// large requests.
const workBurst = 25 * time.Second

// Work counts the cost of handling frames of a connection, in units of about 1 µs. It returns the time for which the
// connection must not be read; 0: it may be read. The units count for the credential (Limits.Work). Units of
// connections that are not proven also count for the identity (Limits.WorkInAll), so that many credentials are of no
// use to a caller. The work of up to 25 s may be used at once. Work does not block.
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

// reserve counts units, and returns the time until all counted units are within rate per second and the burst.
func (p *pace) reserve(now time.Time, units, rate int) time.Duration {
	every := time.Second / time.Duration(rate)
	burst := int(workBurst / every)
	p.room(now, burst, every)
	p.used += units
	return time.Duration(max(0, p.used-burst)) * every
}
