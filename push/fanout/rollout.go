package fanout

import "time"

// rollout delivers each plan progressively. A plan is the configuration of all proxies for one revision of the store. A
// plan is sent to `least` streams first. After each stream that accepts the plan, two more streams may have a turn. So
// with 10,000 proxies the number of concurrent streams doubles seven times before the last proxy gets the plan.
// Acceptance of an earlier plan has no effect. Each plan begins with a few streams, however fast plans follow each
// other. When a newer plan replaces the present one, waiting streams keep their positions. So each stream has a turn
// within about `share` plans, even if no stream acknowledges in time.
//
// The window is the number of streams that may try the plan at a time. The first refusal by an identity reduces the
// window to `least`, and occupies a slot for refusalBackoff. If many identities refuse, the plan stops until the
// refused version is withheld (push/quarantine) or replaced. After that, the plan continues with a few streams. Further
// refusals by the same identity do not reduce the window. So an identity that refuses everything does not delay others.
type rollout[S comparable] struct {
	most    int // Budget.Rollout
	plan    int64
	least   int             // number of streams at the beginning of the plan
	window  int             // number of streams that may try the plan at a time
	slots   slots[S]        // slots of streams that were granted a turn and have not accepted the plan
	refused []time.Time     // times at which the slots of refusals become free
	by      map[string]bool // identities that have refused the plan
}

const (
	// share determines the number of streams at the beginning of a plan. It is the number of all streams divided by
	// share, but at least Budget.Rollout.
	share = 128
	// refusalBackoff is the time for which a refusal occupies a slot.
	refusalBackoff = time.Second
	// maxBy is the number of identities that are remembered for a plan. Refusals by further identities do not change
	// the window, which is small anyway after so many refusals.
	maxBy = 1000
)

// begin begins the rollout of a plan. The parameter streams is the number of all streams. A plan that is not newer than
// the present one has no effect.
func (t *rollout[S]) begin(plan int64, streams int) {
	if plan <= t.plan {
		return
	}
	t.plan, t.least = plan, max(t.most, streams/share)
	t.window = t.least
	t.refused, t.by = nil, nil
	t.slots.clear()
}

// open reports whether another stream may have a turn for the plan.
func (t *rollout[S]) open() bool { return t.slots.count()+len(t.refused) < t.window }

// accept frees the slot of a stream that has acknowledged a whole plan, and widens the window by one. It also widens
// the window if expire has freed the slot before.
func (t *rollout[S]) accept(s *entry[S], plan int64) {
	if plan == t.plan {
		t.slots.leave(s)
		t.window = min(t.window+1, 1<<20)
	}
}

// skip frees the slot of a stream to which nothing of a plan was sent, or whose ACK proves nothing. The window does not
// change.
func (t *rollout[S]) skip(s *entry[S], plan int64) {
	if plan == t.plan {
		t.slots.leave(s)
	}
}

// refuse frees the slot of a stream that has refused a part of a plan. The parameter by is the identity of the stream's
// client. The first refusal by an identity reduces the window to at most `least`, and occupies a slot for
// refusalBackoff.
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

// expire frees the slots of refusals after refusalBackoff. It also frees the slots of streams that have not
// acknowledged for the duration slow.
func (t *rollout[S]) expire(now time.Time, slow time.Duration) {
	for len(t.refused) > 0 && !now.Before(t.refused[0]) {
		t.refused = t.refused[1:]
	}
	t.slots.expire(now, slow)
}

// next returns the time at which a slot becomes free even if there are no events. It returns false if no such time is
// known.
func (t *rollout[S]) next(slow time.Duration) (at time.Time, ok bool) {
	at, ok = t.slots.next(slow)
	if len(t.refused) > 0 && (!ok || t.refused[0].Before(at)) {
		at, ok = t.refused[0], true
	}
	return at, ok
}
