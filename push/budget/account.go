package budget

import (
	"cmp"
	"container/list"
	"fmt"
	"time"
)

// refreshKnown updates the known workloads of an identity if they are out of date, and if the function relevant returns
// true for the identity's account. The caller must not hold the lock.
func (l *Ledger) refreshKnown(identity string, relevant func(*account) bool) {
	now := l.cfg.Now()
	l.mu.Lock()
	a := l.accounts[identity]
	due := a != nil && relevant(a) && (a.knownAt.IsZero() || now.Sub(a.knownAt) >= knownFor)
	if due {
		a.knownAt = now
	}
	l.mu.Unlock()
	if !due {
		return
	}
	known := l.cfg.Workloads(identity)
	l.mu.Lock()
	a.known = known
	l.mu.Unlock()
}

// The callers of the functions below hold the lock.

// credential returns a holder's credential, and creates it if necessary.
func (l *Ledger) credential(h Holder) *credential {
	a := l.accounts[h.Identity]
	if a == nil {
		a = &account{identity: h.Identity, credentials: map[string]*credential{}, heavy: map[*credential]struct{}{}}
		l.accounts[h.Identity] = a
	}
	c := a.credentials[h.Credential]
	if c == nil {
		c = &credential{name: h.Credential, account: a, workloads: map[string]*list.List{}}
		a.credentials[h.Credential] = c
	}
	return c
}

// most returns the limit of an identity's streams. The identity may exceed the limit while all its credentials are
// light. A light credential has at most Limits.Workload streams.
func (l *Ledger) most(a *account) int { return l.cfg.Least + l.cfg.PerKnown*len(a.known) }

// proven reports whether a holder's streams are proven: the credential is bound to a Pod, or the connection comes from
// the address of a known workload.
func (a *account) proven(h Holder) bool {
	_, known := a.known[h.From]
	return h.Pod || known
}

// loser returns the stream that must end so that e may enter, or nil if no stream must end. The error means that e must
// not enter. While all credentials are light, e may enter above the limit. A stream that is not proven may enter above
// the limit only if the credentials without a Pod have fewer streams than the limit, or fewer than Limits.Workload.
func (l *Ledger) loser(c *credential, e *Entry) (loser *Entry, err error) {
	a := c.account
	if a.streams < l.most(a) {
		return nil, nil
	}
	proven, light := a.proven(e.holder), c.streams.Len() < l.cfg.Workload
	var greedy *credential
	for other := range a.heavy {
		if greedy == nil || cmp.Or(other.streams.Len()-greedy.streams.Len(), cmp.Compare(greedy.name, other.name)) > 0 {
			greedy = other
		}
	}
	full := fmt.Errorf("%w: %d streams are open", ErrExhausted, a.streams)
	switch {
	case greedy == nil && !proven && a.unbound >= max(l.most(a), l.cfg.Workload):
		return nil, full
	case greedy == nil:
		return nil, nil // all credentials are light
	case c.streams.Len()+1 >= greedy.streams.Len():
		// With e, c would have at least as many streams as greedy, and the two credentials would displace each other.
		if loser = a.newestUnproven(c); proven && loser != nil {
			return loser, nil
		}
		return nil, full
	}
	if loser = a.newestUnproven(greedy); loser == nil && (light || proven) {
		loser = greedy.streams.Back().Value.(*Entry)
	}
	if loser == nil {
		return nil, full
	}
	return loser, nil
}

// newestUnproven returns the newest of a credential's streams that are not proven, or nil.
func (a *account) newestUnproven(c *credential) *Entry {
	for at := c.streams.Back(); at != nil; at = at.Prev() {
		if e := at.Value.(*Entry); !a.proven(e.holder) {
			return e
		}
	}
	return nil
}

// add counts a stream for its credential and identity.
func (l *Ledger) add(c *credential, e *Entry) {
	e.credential = c
	e.place = c.streams.PushBack(e)
	if c.account.streams++; c.streams.Len() > l.cfg.Workload {
		c.account.heavy[c] = struct{}{}
	}
	if !e.holder.Pod {
		c.account.unbound++
	}
	if c.place != nil {
		l.idle.Remove(c.place)
		c.place = nil
	}
}

// becomesIdle records that a credential has no streams.
func (l *Ledger) becomesIdle(c *credential) {
	c.idleAt = l.cfg.Now()
	c.place = l.idle.PushBack(c)
}

// join adds a stream to the workload with a node ID. If the workload then has more than Limits.Workload streams, join
// removes and returns the workload's oldest stream. It does nothing for a stream that has joined a workload already, or
// that was removed.
func (e *Entry) join(node string) (oldest *Entry) {
	c := e.credential
	if e.place == nil || e.among != nil {
		return nil
	}
	all := c.workloads[node]
	if all == nil {
		all = &list.List{}
		c.workloads[node] = all
	}
	e.workload, e.among = node, all.PushBack(e)
	if all.Len() <= e.ledger.cfg.Workload {
		return nil
	}
	oldest = all.Front().Value.(*Entry)
	oldest.remove()
	return oldest
}

// remove stops counting a stream. The stream's bytes of names and messages stay counted until Leave or drop.
func (e *Entry) remove() {
	if e.place == nil {
		return
	}
	l, c := e.ledger, e.credential
	c.streams.Remove(e.place)
	e.place = nil
	if e.among != nil {
		all := c.workloads[e.workload]
		if all.Remove(e.among); all.Len() == 0 {
			delete(c.workloads, e.workload)
		}
	}
	if c.account.streams--; c.streams.Len() <= l.cfg.Workload {
		delete(c.account.heavy, c)
	}
	if !e.holder.Pod {
		c.account.unbound--
	}
	if c.streams.Len() == 0 {
		l.becomesIdle(c)
	}
}

// spend implements Spend. One credential may use 1/4 of its identity's bytes. All credentials without a Pod may use
// 3/4 together, and only a proven stream may exceed these 3/4.
func (e *Entry) spend(bytes int) (granted int) {
	l, c := e.ledger, e.credential
	a, free := c.account, l.cfg.NamesFree
	paid := func(spent int) int { return max(0, spent-free) }
	if bytes > 0 {
		most := l.cfg.Names + l.cfg.NamesPerKnown*len(a.known)
		left := min(most-a.spent, most/4-c.spent)
		if !a.proven(e.holder) {
			left = min(left, most-most/4-a.unproven)
		}
		bytes = min(bytes, max(0, left)+max(0, free-e.spent))
	}
	bytes = max(bytes, -e.spent)
	change := paid(e.spent+bytes) - paid(e.spent)
	e.spent += bytes
	a.spent += change
	c.spent += change
	if !e.holder.Pod {
		a.unproven += change
	}
	return bytes
}

// pace limits the rate of events: a burst at once, and one more in each period.
type pace struct {
	used  int       // events that count against the burst
	since time.Time // the time up to which used was reduced
}

// allow counts one event. It returns false, without counting, if the limit is reached.
func (p *pace) allow(now time.Time, burst int, every time.Duration) bool {
	if !p.room(now, burst, every) {
		return false
	}
	p.used++
	return true
}

// room reports whether one more event is within the limit.
func (p *pace) room(now time.Time, burst int, every time.Duration) bool {
	if gone := int(now.Sub(p.since) / every); p.used == 0 || gone >= p.used {
		p.used, p.since = 0, now
	} else if gone > 0 {
		p.used -= gone
		p.since = p.since.Add(time.Duration(gone) * every)
	}
	return p.used < burst
}
