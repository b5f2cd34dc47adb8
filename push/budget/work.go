package budget

import "time"

// workBurst is for how long a credential, or an identity, may have saved up what it did not use: clients begin with large requests.
const workBurst = 25 * time.Second

// Work counts what handling frames of a connection costs, in units of about a microsecond, and says for how long nothing of it may be read; 0: it may. Each
// credential has a pace. What is not proven to be of a known workload goes by the identity's as well, so that who has many credentials, or takes them from
// each other, does not have that many paces. It does not block.
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

// reserve counts units of which there may be rate in each second, and says how long it is until there may be that many.
func (p *pace) reserve(now time.Time, units, rate int) time.Duration {
	every := time.Second / time.Duration(rate)
	burst := int(workBurst / every)
	p.room(now, burst, every)
	p.used += units
	return time.Duration(max(0, p.used-burst)) * every
}
