package budget

import "time"

// workBurst bounds the unused work that a credential or an identity can save up, because clients begin with large
// requests.
const workBurst = 25 * time.Second

// Work counts the cost of handling frames of a connection, in units of about a microsecond. It returns how long the
// connection must not be read; 0: it may be read. Each credential has a pace. Connections that are not proven also
// count for the identity's pace, so that a caller with many credentials, its own or others', does not have as many
// paces. Work does not block.
func (e *Entry) Work(units int) (wait time.Duration) {
	if e == nil {
		return 0
	}
	l := e.ledger
	l.learn(e.holder.Identity, func(a *account) bool { return !a.proven(e.holder) })
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

// reserve counts units, of which rate are allowed per second, and returns the time until they are.
func (p *pace) reserve(now time.Time, units, rate int) time.Duration {
	every := time.Second / time.Duration(rate)
	burst := int(workBurst / every)
	p.room(now, burst, every)
	p.used += units
	return time.Duration(max(0, p.used-burst)) * every
}
