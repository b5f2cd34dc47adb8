package serve

import (
	"cmp"
	"math"
	"time"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
)

// anyPlan is what a stream may be sent that has not been up to date yet: answers to one that joins are not delivered
// progressively.
const anyPlan = math.MaxInt64

// rolloutState is a stream's part in the delivery of a plan: it has begun when the stream was sent to for the first time after it
// was let in, and ends when the client has all of it.
type rolloutState struct {
	plan int64
	on   bool
	sent bool // something of it was sent
}

// tryPlan asks for a turn for a plan that is new to the stream.
func (st *stream) tryPlan(turn *fanout.Stream, plan int64, now time.Time) {
	st.markedAt[fanout.Config].CompareAndSwap(0, now.UnixNano())
	turn.Try(plan)
}

// begins says, with the lock held, whether the stream may be sent all of a set. Where it may not, because the set is of a plan
// that this stream was not let in for, it waits for its turn. A view may move after a turn was given and before it is taken.
func (st *stream) begins(set *manifest.Set, now time.Time) bool {
	may := st.may.Load()
	if set.Plan > may {
		st.tryPlan(st.turn.Load(), set.Plan, now)
		return false
	}
	if may != anyPlan && may > st.rollout.plan {
		st.rollout = rolloutState{plan: may, on: true}
	}
	return true
}

// took is called, with the lock held, where the client may have acknowledged all of the plan that is tried on it.
func (st *stream) took(turn *fanout.Stream) {
	if !st.rollout.on || !st.state.Took() {
		return
	}
	st.rollout.on = false
	if st.rollout.sent {
		turn.Accepted(st.rollout.plan)
	} else {
		turn.Skipped(st.rollout.plan)
	}
}

// refused is called, with the lock held, when the client has refused something.
func (st *stream) refused(turn *fanout.Stream) {
	if st.rollout.plan > 0 {
		st.rollout.on = false
		turn.Refused(st.rollout.plan, cmp.Or(st.client.Identity, "node:"+st.client.ID))
	}
}

// grown is called, with the lock held, when a stream counts as up to date: from now on plans are tried on it.
func (st *stream) grown(set *manifest.Set) {
	if st.may.CompareAndSwap(anyPlan, set.Plan) {
		st.rollout.plan = set.Plan
	}
}
