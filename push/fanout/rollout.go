package fanout

import "time"

// rollout delivers each plan of configuration progressively: it goes to `least` streams, or to one in `share` of them, and every
// stream that takes it lets two more have their turn, so that a change for 10,000 proxies has doubled seven times before
// the last gets it. What came before says nothing about it: however fast plans follow each other, each begins with a few, and
// streams that wait keep their places, so that every one of them has its turn within some `share` plans even where nobody
// acknowledges anything in time.
//
// The first refusal of an identity takes the window back and keeps its place for refusalBackoff: where many refuse, the plan stops
// until the refused version is withheld (push/quarantine) or replaced, and then goes on with a few. Further refusals of the same
// identity do nothing, so one that refuses everything holds up nobody.
type rollout[S comparable] struct {
	most    int // Budget.Rollout
	plan    int64
	least   int
	window  int         // streams that may be trying at once
	slots   slots[S]    // of those that were granted a turn, and have not taken the plan
	refused []time.Time // until when the places of refusals are kept
	by      map[string]bool
}

const (
	// share is the part of all streams that a plan goes to at once.
	share = 128
	// refusalBackoff is for how long a refusal keeps its place.
	refusalBackoff = time.Second
	// maxBy bounds the identities that are remembered; the window has long been small where there are more.
	maxBy = 1000
)

// begin is called with the plan of a stream that has something to be sent: where that is a newer one, its rollout begins.
func (t *rollout[S]) begin(plan int64, streams int) {
	if plan <= t.plan {
		return
	}
	t.plan, t.least = plan, max(t.most, streams/share)
	t.window = t.least
	t.refused, t.by = nil, nil
	t.slots.clear()
}

// open says whether another stream may have its turn.
func (t *rollout[S]) open() bool { return t.slots.count()+len(t.refused) < t.window }

// accept is called when a stream has acknowledged all of a plan, also of one that was slow to.
func (t *rollout[S]) accept(s *entry[S], plan int64) {
	if plan == t.plan {
		t.slots.leave(s)
		t.window = min(t.window+1, 1<<20)
	}
}

// skip is called when there was nothing of a plan to be sent to a stream: it says nothing about it.
func (t *rollout[S]) skip(s *entry[S], plan int64) {
	if plan == t.plan {
		t.slots.leave(s)
	}
}

// refuse is called when a stream has refused something of a plan.
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

// expire frees the places of refusals that were made long ago, and of streams that have been slow for so long.
func (t *rollout[S]) expire(now time.Time, slow time.Duration) {
	for len(t.refused) > 0 && !now.Before(t.refused[0]) {
		t.refused = t.refused[1:]
	}
	t.slots.expire(now, slow)
}

// next is when time alone will open it.
func (t *rollout[S]) next(slow time.Duration) (at time.Time, ok bool) {
	at, ok = t.slots.next(slow)
	if len(t.refused) > 0 && (!ok || t.refused[0].Before(at)) {
		at, ok = t.refused[0], true
	}
	return at, ok
}
