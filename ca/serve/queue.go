package serve

import (
	"container/list"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
)

// holder is an identity with one of its credentials (attest.Caller.Credential). An identity may have thousands of
// workloads, and the requests of one workload must not delay the others.
type holder struct{ identity, credential string }

// whole returns the identity without a credential.
func (h holder) whole() holder { return holder{identity: h.identity} }

// ticket is one request that waits to be signed. The queue owns a ticket from the event arrive until the effect start
// or refuse, or the event abandon.
type ticket struct {
	holder
	first    bool // true if the caller did not authenticate by a certificate
	bytes    int  // size of the request's CSR
	deadline time.Time
	// expiry is the status code of a refusal after the deadline. The code is DeadlineExceeded if the caller set the
	// deadline, and ResourceExhausted if the deadline comes from MaxWait.
	expiry  codes.Code
	arrived time.Time

	state   ticketState
	element *list.Element // the ticket's element in its fairQueue
	ready   time.Time     // end of the delay that Limits.Rate imposes
	index   int           // index in the heap of delayed tickets

	admitted chan error // capacity 1; receives nil when signing may start, or the refusal
}

type ticketState uint8

const (
	outside ticketState = iota
	delayed
	waiting
)

// event is an input of the queue.
type event interface{ isEvent() }

type (
	arrive  struct{ t *ticket }
	abandon struct{ t *ticket } // the caller has stopped waiting, or the deadline has passed
	// signed: a started ticket has left its signing slot. The field took is the time in the slot. If journal is true,
	// the journal entry of the certificate is being written, and the event recorded follows.
	signed struct {
		took    time.Duration
		journal bool
	}
	recorded struct{} // writing a journal entry has succeeded or failed
	tick     struct{} // time has passed
)

func (arrive) isEvent()   {}
func (abandon) isEvent()  {}
func (signed) isEvent()   {}
func (recorded) isEvent() {}
func (tick) isEvent()     {}

// effect is an action that the caller of Step must carry out.
type effect interface{ isEffect() }

type (
	start  struct{ t *ticket }
	refuse struct {
		t    *ticket
		code codes.Code
		why  string
	}
	wakeAt struct{ at time.Time }
)

func (start) isEffect()  {}
func (refuse) isEffect() {}
func (wakeAt) isEffect() {}

// queue decides which request is signed next. First certificates precede renewals, because a Pod waits for its first
// certificate. A renewal can wait, because certificates are renewed at half of their lifetime. While renewals wait, one
// renewal is signed after each Limits.FirstRuns first certificates. The queue alternates between identities, and
// between the credentials of an identity. It has no clock and starts no goroutines.
type queue struct {
	limits  Limits
	running int           // number of tickets in signing slots
	writing int           // number of journal entries that are being written
	service time.Duration // moving average of a ticket's time in its slot

	first, renew fairQueue
	memory       memoryBudget
	streak       int // number of first certificates picked in a row while renewals waited
	delayed      delays
	rates        rates // rates of identities
	shares       rates // rates of credentials
}

// share is the divisor for credentials: each credential gets a quarter of its identity's rate and burst.
const share = 4

func newQueue(l Limits) *queue {
	return &queue{limits: l, service: 500 * time.Microsecond, first: newFairQueue(),
		renew: newFairQueue(), memory: newMemoryBudget(l.WaitingBytes), rates: newRates(l.Rate, l.Burst),
		shares: newRates(l.Rate/share, max(1, l.Burst/share))}
}

// Step applies one event at the time now. The caller must carry out the effects in their order.
func (q *queue) Step(now time.Time, e event) []effect {
	var out []effect
	alarm := false
	switch e := e.(type) {
	case arrive:
		out = q.arrive(now, e.t)
	case abandon:
		q.remove(e.t)
	case signed:
		q.running--
		if e.journal {
			q.writing++
		}
		q.service += (e.took - q.service) / 16
	case recorded:
		q.writing--
	case tick:
		alarm = true
	}
	return append(append(out, q.release(now, alarm)...), q.run(now)...)
}

func (q *queue) arrive(now time.Time, t *ticket) []effect {
	t.arrived = now
	t.ready = q.rates.earliest(t.whole(), now)
	if t.credential != "" {
		if own := q.shares.earliest(t.holder, now); own.After(t.ready) {
			t.ready = own
		}
	}
	if r := q.refusal(now, t); r != nil {
		return []effect{*r}
	}
	var out []effect
	for q.waiting() >= q.limits.Waiting || !q.memory.fits(t) { // refusal has checked that enough renewals can be displaced
		last := q.renew.last()
		q.remove(last)
		out = append(out, refuse{last, codes.ResourceExhausted, "displaced by a first certificate: try again with back-off"})
	}
	q.rates.take(t.whole(), now)
	if t.credential != "" {
		q.shares.take(t.holder, now)
	}
	q.memory.take(t)
	if t.ready.After(now) {
		q.delayed.add(t)
		return append(out, wakeAt{q.delayed.next()})
	}
	q.queueOf(t).push(t)
	return out
}

// refusal returns the reason why t cannot be queued, or nil if it can be queued. It refuses a ticket whose delay or
// estimated wait would end after its deadline, or for which the queue has no room. A first certificate may use the room
// of waiting renewals, which it displaces.
func (q *queue) refusal(now time.Time, t *ticket) *refuse {
	patience := t.deadline.Sub(now)
	if patience <= 0 {
		return &refuse{t, t.expiry, "the deadline had passed before the request could be queued"}
	}
	held := t.ready.Sub(now)
	if held > patience {
		who, rate := t.identity, q.limits.Rate
		if t.credential != "" && t.ready.After(q.rates.earliest(t.whole(), now)) {
			who, rate = "one Pod or token of "+who, rate/share
		}
		reason := fmt.Sprintf("%s requests more than %g certificates per second: the next certificate is possible in %s",
			who, rate, held.Round(time.Millisecond))
		return &refuse{t, codes.ResourceExhausted, reason}
	}
	if wait := held + q.estimate(t); wait > patience {
		return &refuse{t, codes.ResourceExhausted, fmt.Sprintf("the queue is %s long, but the deadline is in %s: try again with back-off",
			wait.Round(time.Millisecond), patience.Round(time.Millisecond))}
	}
	if q.waiting() >= q.limits.Waiting && (!t.first || q.renew.n == 0) {
		return &refuse{t, codes.ResourceExhausted, fmt.Sprintf("%d requests wait already: try again with back-off", q.waiting())}
	}
	if !q.memory.fits(t) && !(t.first && q.memory.without(&q.renew, t)) {
		return &refuse{t, codes.ResourceExhausted, fmt.Sprintf("%d bytes of requests wait already, %d of them of %s: try again with back-off",
			q.memory.used, q.memory.bytes[t.whole()], t.identity)}
	}
	return nil
}

// estimate returns the estimated wait of t in the queue if no further request arrives.
func (q *queue) estimate(t *ticket) time.Duration {
	ahead := q.queueOf(t).ahead(t.holder)
	if !t.first {
		ahead += q.first.n
	}
	return time.Duration(ahead+q.running) * q.service / time.Duration(q.limits.Signing)
}

// release moves each delayed ticket whose delay has ended to its fairQueue. The argument alarm is true if the last
// requested wake-up has come. If alarm is true or a ticket was moved, release requests a wake-up for the next delayed
// ticket.
func (q *queue) release(now time.Time, alarm bool) []effect {
	before := len(q.delayed)
	for len(q.delayed) > 0 && !q.delayed[0].ready.After(now) {
		t := q.delayed.pop()
		q.queueOf(t).push(t)
	}
	if len(q.delayed) == 0 || !alarm && before == len(q.delayed) {
		return nil
	}
	return []effect{wakeAt{q.delayed.next()}}
}

func (q *queue) run(now time.Time) []effect {
	var out []effect
	for q.running < q.limits.Signing && q.running+q.writing < q.limits.Journal {
		t := q.pick()
		if t == nil {
			break
		}
		if !t.deadline.After(now) {
			out = append(out, refuse{t, t.expiry, fmt.Sprintf("not signed within %s", now.Sub(t.arrived).Round(time.Millisecond))})
			continue
		}
		q.running++
		out = append(out, start{t})
	}
	return out
}

func (q *queue) pick() *ticket {
	if q.renew.n > 0 && (q.first.n == 0 || q.streak >= q.limits.FirstRuns) {
		q.streak = 0
		return q.leave(q.renew.pop())
	}
	if q.renew.n > 0 {
		q.streak++
	}
	return q.leave(q.first.pop())
}

// leave frees the bytes of t in the memory budget, and returns t, which may be nil.
func (q *queue) leave(t *ticket) *ticket {
	if t != nil {
		q.memory.give(t)
	}
	return t
}

func (q *queue) remove(t *ticket) {
	switch t.state {
	case waiting:
		q.queueOf(t).remove(t)
		q.memory.give(t)
	case delayed:
		q.delayed.remove(t)
		q.memory.give(t)
	case outside: // not queued: already started or refused
	}
}

func (q *queue) waiting() int { return q.first.n + q.renew.n + len(q.delayed) }

func (q *queue) queueOf(t *ticket) *fairQueue {
	if t.first {
		return &q.first
	}
	return &q.renew
}
