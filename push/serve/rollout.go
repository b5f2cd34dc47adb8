package serve

import (
	"math"
	"time"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
)

// anyPlan is what a stream may be sent that has not been up to date yet: answers to one that joins are not delivered
// progressively.
const anyPlan = math.MaxInt64

// rolloutState is a stream's part in the delivery of a plan: it has begun when the stream was sent to for the first time after it
// was let in, and ends when the client has all of it. Every turn that was given for a plan ends in exactly one of Accepted, Skipped
// and Refused: until then it keeps a slot of the rollout (push/fanout) from others.
type rolloutState struct {
	turn bool  // a turn was given for a plan, and nothing was sent since
	plan int64 // that the last such turn was given for
	has  int64 // the plan of the set that is sent: where a view has not moved yet, it is an older one
	on   bool
	sent bool // something of it was sent
	part bool // something of it was not: the client's identity alone refuses that, so what it takes says nothing about others
}

// tryPlan asks for a turn for a plan that is new to the stream.
func (x *exchange) tryPlan(plan int64, now time.Time) {
	x.markedAt[fanout.Config].CompareAndSwap(0, now.UnixNano())
	x.turn.Load().Try(plan)
}

// begins says, with the lock held, whether the stream may be sent all of a set. Where it may not, because the set is of a plan
// that this stream was not let in for, it waits for its turn. A view may move after a turn was given and before it is taken.
func (x *exchange) begins(set *manifest.Set, now time.Time) bool {
	may, r := x.may.Load(), &x.rollout
	if set.Plan > may {
		x.tryPlan(set.Plan, now)
		return false
	}
	r.has = set.Plan
	if r.turn && may != anyPlan {
		same := r.on && r.plan == may
		r.sent, r.part = r.sent && same, r.part && same
		r.plan, r.on = may, true
	}
	r.turn = false
	return true
}

// took is called, with the lock held, where the client may have acknowledged all of the plan that is tried on it.
func (x *exchange) took() {
	if !x.rollout.on || !x.state.Took() {
		return
	}
	turn, current := x.turn.Load(), x.planOver()
	if current && x.rollout.sent && !x.rollout.part {
		turn.Accepted(x.rollout.plan)
	} else {
		turn.Skipped(x.rollout.plan)
	}
}

// refused is called, with the lock held, when the client has refused something. It is the plan that was tried on it, or 0.
func (x *exchange) refused() (plan int64) {
	if x.rollout.plan > 0 {
		x.planOver()
	}
	return x.rollout.plan
}

// planOver notes that the turn for a plan is over. It says whether what was sent was of that plan: where it was of an older one, the
// newer one needs a turn of its own.
func (x *exchange) planOver() (current bool) {
	r := &x.rollout
	r.on = false
	if current = r.has >= r.plan; !current {
		x.may.CompareAndSwap(r.plan, r.has)
	}
	return current
}

// grown is called, with the lock held, when a stream counts as up to date: from now on plans are tried on it.
func (x *exchange) grown(set *manifest.Set) {
	if x.may.CompareAndSwap(anyPlan, set.Plan) {
		x.rollout.plan = set.Plan
	}
}
