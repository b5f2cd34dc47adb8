package serve

import (
	"math"
	"time"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
)

// anyPlan permits every plan, for a stream that has not been up to date yet: its first configuration is not delivered
// progressively.
const anyPlan = math.MaxInt64

// rolloutState is a stream's part in the delivery of a plan. The delivery begins with the first send after the stream's
// turn for the plan, and ends when the client has the whole plan. Every turn for a plan ends in exactly one of
// Accepted, Skipped and Refused. Until then it occupies a slot of the rollout (push/fanout).
type rolloutState struct {
	turn bool  // a turn for a plan was granted, and nothing was sent since
	plan int64 // the plan of the last such turn
	has  int64 // the plan of the set that is sent; older than plan if the view has not moved yet
	on   bool
	sent bool // a part of the plan was sent
	part bool // a part was withheld, because only this identity refuses it: its ACK says nothing about others
}

// tryPlan requests a turn for a plan that is new to the stream.
func (x *exchange) tryPlan(plan int64, now time.Time) {
	x.markedAt[fanout.Config].CompareAndSwap(0, now.UnixNano())
	x.turn.Load().Try(plan)
}

// begins reports whether the stream may be sent all of a set. If the set's plan is newer than the permitted one, it
// requests a turn for that plan. A view may move between the grant of a turn and its use. The caller holds the lock.
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

// took ends the turn for the plan that is tried on the client, if the client has acknowledged all of it: the plan
// counts as accepted, or as skipped if it says nothing about other streams. The caller holds the lock.
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

// refused ends the turn for a plan after a refusal of the client. It returns the plan that was tried on it, or 0. The
// caller holds the lock.
func (x *exchange) refused() (plan int64) {
	if x.rollout.plan > 0 {
		x.planOver()
	}
	return x.rollout.plan
}

// planOver ends the turn for a plan. It reports whether the sent set was of that plan. If it was older, the newer plan
// needs another turn.
func (x *exchange) planOver() (current bool) {
	r := &x.rollout
	r.on = false
	if current = r.has >= r.plan; !current {
		x.may.CompareAndSwap(r.plan, r.has)
	}
	return current
}

// grown ends the first delivery of a stream that is up to date: from now on plans are tried on it. The caller holds the
// lock.
func (x *exchange) grown(set *manifest.Set) {
	if x.may.CompareAndSwap(anyPlan, set.Plan) {
		x.rollout.plan = set.Plan
	}
}
