package serve

import (
	"container/list"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
)

// holder is one credential of an identity (attest.Caller.Credential), whose workloads may be thousands: what one of them asks for is not to keep the
// others waiting.
type holder struct{ identity, credential string }

// whole is all of the identity.
func (h holder) whole() holder { return holder{identity: h.identity} }

// ticket is one request that wants to sign. It is owned by the queue from Arrive until Start or Refuse.
type ticket struct {
	holder
	first    bool
	bytes    int // of its request, which is held while it waits
	deadline time.Time
	expiry   codes.Code // what it is told when the deadline passes: whose deadline it is
	arrived  time.Time

	state   ticketState
	element *list.Element // in its line
	ready   time.Time     // delayed by the rate of its identity, or its credential, until then
	index   int           // in the heap of delayed ones

	admitted chan error // of one: nil to start
}

type ticketState uint8

const (
	outside ticketState = iota
	delayed
	waiting
)

// event is something that happened to the queue.
type event interface{ isEvent() }

type (
	arrive  struct{ t *ticket }
	abandon struct{ t *ticket } // its caller went, or its deadline passed
	// signed: a started ticket has left its signing slot, which it held for took; journal says that its entry is being
	// written.
	signed struct {
		took    time.Duration
		journal bool
	}
	recorded struct{} // an entry is durable, or failed
	tick     struct{} // time has passed
)

func (arrive) isEvent()   {}
func (abandon) isEvent()  {}
func (signed) isEvent()   {}
func (recorded) isEvent() {}
func (tick) isEvent()     {}

// effect is what has to be done.
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

// queue decides who signs next: first certificates before renewals (a pod waits for the former, the latter has half a
// lifetime), in turn between identities, in the order of arrival within one. It has no clock and starts nothing.
type queue struct {
	limits  Limits
	running int           // in signing slots
	writing int           // in the journal
	service time.Duration // of one ticket in its slot: moving average

	first, renew line
	held         room
	streak       int // first certificates started in a row while renewals waited
	late         delays
	rates        rates // of identities
	shares       rates // of their credentials
}

// share is the part of an identity's rate that one of its credentials has.
const share = 4

func newQueue(l Limits) *queue {
	return &queue{limits: l, service: 500 * time.Microsecond, first: newLine(), renew: newLine(), held: newRoom(l.WaitingBytes), rates: newRates(l.Rate, l.Burst),
		shares: newRates(l.Rate/share, max(1, l.Burst/share))}
}

// Step takes one event and says what to do.
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
	if r := q.judge(now, t); r != nil {
		return []effect{*r}
	}
	var out []effect
	for q.waiting() >= q.limits.Waiting || !q.held.fits(t) { // judge has seen that this is enough
		last := q.renew.last()
		q.remove(last)
		out = append(out, refuse{last, codes.ResourceExhausted, "displaced by a first certificate: try again with back-off"})
	}
	q.rates.take(t.whole(), now)
	if t.credential != "" {
		q.shares.take(t.holder, now)
	}
	q.held.take(t)
	if t.ready.After(now) {
		q.late.add(t)
		return append(out, wakeAt{q.late.next()})
	}
	q.line(t).push(t)
	return out
}

// judge says why t cannot be served: its deadline is too near for the queue or for its rate, or there is no room.
// nil: it can.
func (q *queue) judge(now time.Time, t *ticket) *refuse {
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
		return &refuse{t, codes.ResourceExhausted, fmt.Sprintf("%s asks for more than %g certificates a second: it may have the next in %s", who, rate, held.Round(time.Millisecond))}
	}
	if wait := held + q.estimate(t); wait > patience {
		return &refuse{t, codes.ResourceExhausted, fmt.Sprintf("the queue is %s long and this request gives up in %s: try again with back-off", wait.Round(time.Millisecond), patience.Round(time.Millisecond))}
	}
	if q.waiting() >= q.limits.Waiting && (!t.first || q.renew.n == 0) {
		return &refuse{t, codes.ResourceExhausted, fmt.Sprintf("%d requests wait already: try again with back-off", q.waiting())}
	}
	if !q.held.fits(t) && !(t.first && q.held.without(&q.renew, t)) {
		return &refuse{t, codes.ResourceExhausted, fmt.Sprintf("%d bytes of requests wait already, %d of them of %s: try again with back-off",
			q.held.used, q.held.of[t.whole()], t.identity)}
	}
	return nil
}

// estimate is how long t would wait if nothing else came.
func (q *queue) estimate(t *ticket) time.Duration {
	ahead := q.line(t).ahead(t.holder)
	if !t.first {
		ahead += q.first.n
	}
	return time.Duration(ahead+q.running) * q.service / time.Duration(q.limits.Signing)
}

// release moves what its identity's rate held back to the lines; alarm says that the alarm of the next is used up.
func (q *queue) release(now time.Time, alarm bool) []effect {
	before := len(q.late)
	for len(q.late) > 0 && !q.late[0].ready.After(now) {
		t := q.late.pop()
		q.line(t).push(t)
	}
	if len(q.late) == 0 || !alarm && before == len(q.late) {
		return nil
	}
	return []effect{wakeAt{q.late.next()}}
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

// leave gives the room of t back; nil: there is no ticket.
func (q *queue) leave(t *ticket) *ticket {
	if t != nil {
		q.held.give(t)
	}
	return t
}

func (q *queue) remove(t *ticket) {
	switch t.state {
	case waiting:
		q.line(t).remove(t)
		q.held.give(t)
	case delayed:
		q.late.remove(t)
		q.held.give(t)
	case outside: // it is in no list
	}
}

func (q *queue) waiting() int { return q.first.n + q.renew.n + len(q.late) }

func (q *queue) line(t *ticket) *line {
	if t.first {
		return &q.first
	}
	return &q.renew
}
