package fanout

import "time"

// rollout delivers each plan of configuration progressively. A plan goes to `least` streams first, or to one in `share`
// of them, and every stream that accepts it lets two more have their turn. So a change for 10,000 proxies doubles seven
// times before the last one gets it. Earlier plans say nothing about a new one: each begins with a few streams, however
// fast plans follow each other. Waiting streams keep their places, so that each has its turn within about `share`
// plans, even if no stream acknowledges in time.
//
// The first refusal of an identity resets the window and keeps its slot for refusalBackoff. If many refuse, the plan
// stops until the refused version is withheld (push/quarantine) or replaced, and then continues with a few streams.
// Further refusals of the same identity have no effect, so an identity that refuses everything delays no other.
type rollout[S comparable] struct {
	most    int // Budget.Rollout
	plan    int64
	least   int
	window  int         // streams that may try the plan at a time
	slots   slots[S]    // of streams that were granted a turn, and have not accepted the plan
	refused []time.Time // when the slots of refusals become free
	by      map[string]bool
}

const (
	// share divides the number of streams for the first part of a plan.
	share = 128
	// refusalBackoff is the time for which a refusal keeps its slot.
	refusalBackoff = time.Second
	// maxBy bounds the identities that are remembered. With so many refusals the window is small already.
	maxBy = 1000
)

// begin begins the rollout of a plan; a plan that is not newer has no effect.
func (t *rollout[S]) begin(plan int64, streams int) {
	if plan <= t.plan {
		return
	}
	t.plan, t.least = plan, max(t.most, streams/share)
	t.window = t.least
	t.refused, t.by = nil, nil
	t.slots.clear()
}

// open reports whether another stream may have its turn.
func (t *rollout[S]) open() bool { return t.slots.count()+len(t.refused) < t.window }

// accept widens the window by one after a stream has acknowledged a whole plan, even after it counted as slow.
func (t *rollout[S]) accept(s *entry[S], plan int64) {
	if plan == t.plan {
		t.slots.leave(s)
		t.window = min(t.window+1, 1<<20)
	}
}

// skip frees the slot of a stream to which nothing of a plan was sent. The window does not change.
func (t *rollout[S]) skip(s *entry[S], plan int64) {
	if plan == t.plan {
		t.slots.leave(s)
	}
}

// refuse frees the slot of a stream that has refused a part of a plan. The first refusal of each identity, by, reduces
// the window to its least size, and occupies a slot for refusalBackoff.
func (t *rollout[S]) refuse(s *entry[S], plan int64, by string, now time.Time) {
	if plan != t.plan {
		return
	}
	t.slots.leave(s)
	if t.by[by] || len(t.by) >= maxBy {
		return
	}
	if t.by == nil {
		t.by = map[string]bool{}
	}
	t.by[by] = true
	t.window = min(t.window, t.least)
	t.refused = append(t.refused, now.Add(refusalBackoff))
}

// expire frees the slots of old refusals, and of streams that have been slow.
func (t *rollout[S]) expire(now time.Time, slow time.Duration) {
	for len(t.refused) > 0 && !now.Before(t.refused[0]) {
		t.refused = t.refused[1:]
	}
	t.slots.expire(now, slow)
}

// next returns when time alone will open the rollout.
func (t *rollout[S]) next(slow time.Duration) (at time.Time, ok bool) {
	at, ok = t.slots.next(slow)
	if len(t.refused) > 0 && (!ok || t.refused[0].Before(at)) {
		at, ok = t.refused[0], true
	}
	return at, ok
}
