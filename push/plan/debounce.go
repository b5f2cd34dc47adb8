package plan

import "time"

// debounce decides when the noted edits are due to be planned. It has no clock, so the caller passes the time.
//
// Edits are due after a quiet time without further edits. If the last plan was less than `after` ago, the quiet time is
// `after`. If not, a first edit that stands alone (standsAlone) is due at once. For any other first edit the quiet time
// is a quarter of `after`. Each further edit doubles the quiet time, up to `after`. So a single edit is planned
// quickly, and fifty edits at once cause one plan. The edits are due at the latest when the first of them has waited
// for `most`.
//
// If planning all waiting edits is estimated to last longer than `longPlan`, they are due when a pause has passed
// since the last plan. A longer pause would harm other namespaces, because one loop plans for all namespaces. One large
// plan of gathered edits would delay their configuration by seconds. A shorter pause would harm the leader. When the
// leader lacks processor time, an endless series of edits has gaps. A plan in each gap, with pushes to all proxies,
// would slow the leader further.
//
// The pause is three times the duration of the last plan, which leaves processors to other work. It is at most
// `longPause` and at most `most`, but at least a quarter of `after`. The value of longPause was measured on two
// processors in a mesh that is edited without end. With one second, proxies wait 8 s for a change (p99). With two
// seconds they wait 3 s.
type debounce struct {
	after, most   time.Duration
	edits         int           // number of waiting edits
	cost          time.Duration // recent mean cost of one edit
	last          time.Duration // duration of the last plan
	first, newest time.Time     // times at which the oldest and the newest waiting edit came; zero if no edit waits
	planned       time.Time     // time at which the last plan began or ended
	quiet         time.Duration // quiet time after newest
}

// longPlan is the estimated duration of a plan above which the waiting edits wait for a pause since the last plan.
// longPause is the maximum of this pause.
const (
	longPlan  = 30 * time.Millisecond
	longPause = 2 * time.Second
)

// note records a new edit. The parameter waiting is the number of edits that wait now. The parameter alone states that
// the edit stands alone.
func (d *debounce) note(now time.Time, waiting int, alone bool) {
	d.edits = waiting
	switch {
	case d.first.IsZero():
		d.first, d.quiet = now, d.after/4
		if !d.planned.IsZero() && now.Sub(d.planned) < d.after {
			d.quiet = d.after
		} else if alone {
			d.quiet = 0
		}
	default:
		d.quiet = min(max(2*d.quiet, d.after/4), d.after)
	}
	d.newest = now
}

// due returns the time until the edits are due, which is 0 or negative if they are due now. The second result is false
// if no edit waits.
func (d *debounce) due(now time.Time) (time.Duration, bool) {
	if d.first.IsZero() {
		return 0, false
	}
	at := d.newest.Add(d.quiet)
	if end := d.first.Add(d.most); end.Before(at) {
		at = end
	}
	if time.Duration(d.edits)*d.cost > longPlan {
		at = d.planned.Add(max(d.after/4, min(3*d.last, longPause, d.most)))
	}
	return at.Sub(now), true
}

// spent records the cost of a plan that has just ended. The cost of one edit is averaged with the previous cost.
func (d *debounce) spent(now time.Time, edits int, took time.Duration) {
	d.planned, d.last = now, took
	if edits > 0 {
		d.cost = (d.cost + took/time.Duration(edits)) / 2
	}
}

// started records that planning of the waiting edits begins. It returns the time that the oldest edit has waited.
func (d *debounce) started(now time.Time) time.Duration {
	waited := now.Sub(d.first)
	d.first, d.newest, d.planned, d.edits = time.Time{}, time.Time{}, now, 0
	return waited
}

// edge makes the first event of a series due at once. Further events are due together, at intervals of `every`.
type edge struct {
	every   time.Duration
	waits   bool
	planned time.Time
}

// due returns the time until the events are due, which is 0 or negative if they are due now. The second result is false
// if no event waits.
func (e *edge) due(now time.Time) (time.Duration, bool) {
	if !e.waits {
		return 0, false
	}
	return e.planned.Add(e.every).Sub(now), true
}

// started records that planning of the waiting events begins.
func (e *edge) started(now time.Time) { e.waits, e.planned = false, now }
