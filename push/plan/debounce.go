package plan

import "time"

// debounce decides when the noted edits are due to be planned. It has no clock: the caller passes the time.
//
// Edits are due after a quiet time without further ones. The quiet time begins at a quarter of `after`, and doubles
// with each edit up to `after`; soon after a plan it begins at `after`. So a lone edit is planned quickly, and fifty at
// once are one plan. An edit that stands alone (standsAlone) is due at once, unless a plan was soon before it. No edit
// waits longer than `most`.
//
// If planning all waiting edits is estimated to last longer than `longPlan`, they are due a pause after the last plan.
// They must not be due later: one loop plans for all namespaces, and the gathered edits of a namespace that is edited
// without end must not delay the configuration of others by the seconds of one large plan. They must not be due
// earlier: a series of edits without end has gaps when the leader lacks processor time, and a plan in each gap, with
// the pushes to all proxies, would leave it even less. The pause is three times the duration of the last plan, which
// leaves processors to other work, but at most `longPause`: plans that are more frequent than pushes to proxies are
// useless. On two processors, in a mesh that is edited without end, a longPause of one second makes proxies wait for 8
// s (p99), one of two seconds for 3 s.
type debounce struct {
	after, most   time.Duration
	edits         int           // number of waiting edits
	cost          time.Duration // recent mean cost of one edit
	last          time.Duration // duration of the last plan
	first, newest time.Time     // when the oldest and the newest waiting edit came; zero if no edit waits
	planned       time.Time     // when the last plan began or ended
	quiet         time.Duration // quiet time after newest
}

// longPlan is the estimated duration above which the waiting edits are planned in several plans. longPause is the
// maximum pause between two of these.
const (
	longPlan  = 30 * time.Millisecond
	longPause = 2 * time.Second
)

// note records a new edit. waiting is the number of edits that wait now.
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

// due returns the time until the edits are due, which is negative or 0 once they are. The result is false if none
// waits.
func (d *debounce) due(now time.Time) (time.Duration, bool) {
	if d.first.IsZero() {
		return 0, false
	}
	at := d.newest.Add(d.quiet)
	if end := d.first.Add(d.most); end.Before(at) {
		at = end
	}
	if time.Duration(d.edits)*d.cost > longPlan {
		at = d.planned.Add(max(d.after/4, min(3*d.last, longPause)))
	}
	return at.Sub(now), true
}

// spent records the cost of a plan that has just ended. The cost of one edit is averaged with the previous one.
func (d *debounce) spent(now time.Time, edits int, took time.Duration) {
	d.planned, d.last = now, took
	if edits > 0 {
		d.cost = (d.cost + took/time.Duration(edits)) / 2
	}
}

// started records that the waiting edits begin to be planned. It returns how long the oldest of them waited.
func (d *debounce) started(now time.Time) time.Duration {
	waited := now.Sub(d.first)
	d.first, d.newest, d.planned, d.edits = time.Time{}, time.Time{}, now, 0
	return waited
}

// edge makes the first event of a series due at once, and further ones together at intervals of `every`.
type edge struct {
	every   time.Duration
	waits   bool
	planned time.Time
}

// due returns the time until the event is due. The result is false if none waits.
func (e *edge) due(now time.Time) (time.Duration, bool) {
	if !e.waits {
		return 0, false
	}
	return e.planned.Add(e.every).Sub(now), true
}

// started records that the waiting events begin to be planned.
func (e *edge) started(now time.Time) { e.waits, e.planned = false, now }
