package serve

import (
	"math"
	"time"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
)

// anyPlan is the value of exchange.may that permits every plan. A stream has it until its client is up to date for the
// first time, because the first configuration is not delivered progressively.
const anyPlan = math.MaxInt64

// rolloutState is the state of a stream in the progressive delivery of a plan. For the stream, the delivery begins
// with the first send after the stream's turn for the plan was granted. It ends when the client has acknowledged or
// refused the plan. At the end exactly one of the fanout.Stream methods Accepted, Skipped and Refused is called.
// Until then the stream occupies a slot of the rollout (push/fanout).
type rolloutState struct {
	turn bool  // a turn for a plan was granted, and no send has begun since
	plan int64 // the plan of the last such turn
	has  int64 // the plan of the set that is being sent; older than the field plan if the view has not moved yet
	on   bool  // the plan is being delivered
	sent bool  // a part of the plan was sent
	part bool  // a part was withheld from this identity alone, so the client's ACK proves nothing about other clients
}

// tryPlan requests a turn for a plan that may not be sent on the stream yet.
func (x *exchange) tryPlan(plan int64, now time.Time) {
	x.markedAt[fanout.Config].CompareAndSwap(0, now.UnixNano())
	x.turn.Load().Try(plan)
}

// begins reports whether all changes of a set may be sent on the stream. If the set's plan is newer than the permitted
// plan, begins requests a turn for the set's plan. The plan is newer if the view has moved after the present turn was
// granted. The caller holds the lock.
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

// took ends the delivery of a plan if the client has acknowledged the whole plan. The plan counts as accepted, or as
// skipped if the ACK proves nothing about other clients. The caller holds the lock.
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

// refused ends the delivery of a plan after a refusal by the client. It returns the last plan of the stream's
// deliveries, or 0 if no plan was delivered yet. The caller holds the lock.
func (x *exchange) refused() (plan int64) {
	if x.rollout.plan > 0 {
		x.planOver()
	}
	return x.rollout.plan
}

// planOver ends the delivery of a plan. It reports whether the sent set is at least as new as the plan. If the set is
// older, the plan needs another turn.
func (x *exchange) planOver() (current bool) {
	r := &x.rollout
	r.on = false
	if current = r.has >= r.plan; !current {
		x.may.CompareAndSwap(r.plan, r.has)
	}
	return current
}

// grown records that the client has its first configuration, which is the given set. From now on the stream takes
// part in rollouts. The caller holds the lock.
func (x *exchange) grown(set *manifest.Set) {
	if x.may.CompareAndSwap(anyPlan, set.Plan) {
		x.rollout.plan = set.Plan
	}
}
