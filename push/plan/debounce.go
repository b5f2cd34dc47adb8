package plan

import "time"

// debounce says when what was noted is due. It has no clock: the caller says what time it is.
//
// A change is planned once nothing followed it for a quarter of `after`; each one that follows doubles that quiet time,
// up to `after`, and soon after a plan it begins there: a lone edit is quick, and fifty at once are one plan. Nothing
// waits longer than `most`. When planning what waits would take longer than `longPlan`, as far as the last plans tell, it is due a pause after the last
// plan. Not later: one loop plans for all namespaces, and the edits that gather of one that is edited without end must not hold up another's
// configuration for the seconds that a single plan of all of them takes. Nor earlier: edits without end have gaps where the leader is short of
// processor time, and a plan in each of them, with what it sends to all proxies, would leave it even less. The pause is three times as long as the last
// plan took, and so leaves processors to everything else, but no longer than `longPause`: there is no use in planning more often than proxies can be sent to
// (issue 13: with one second instead of two, on two processors, proxies of a mesh that is edited without end wait for 8 s instead of 3, p99).
type debounce struct {
	after, most   time.Duration
	edits         int           // that wait
	cost          time.Duration // of one edit, of late
	last          time.Duration // what the last plan took
	first, newest time.Time     // of what waits; zero: nothing does
	planned       time.Time     // when the last plan began, or ended
	quiet         time.Duration // that has to pass after last
}

// longPlan is how long a plan may take before what waits is planned in several; longPause bounds the time between two of them.
const (
	longPlan  = 30 * time.Millisecond
	longPause = 2 * time.Second
)

func (d *debounce) note(now time.Time, waiting int) {
	d.edits = waiting
	switch {
	case d.first.IsZero():
		d.first, d.quiet = now, d.after/4
		if !d.planned.IsZero() && now.Sub(d.planned) < d.after {
			d.quiet = d.after
		}
	default:
		d.quiet = min(2*d.quiet, d.after)
	}
	d.newest = now
}

// due is how long to wait from now, not above 0: it is due. False: nothing waits.
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

// spent says what the plan that has just ended cost: of one edit, the mean of this one and of those before counts.
func (d *debounce) spent(now time.Time, edits int, took time.Duration) {
	d.planned, d.last = now, took
	if edits > 0 {
		d.cost = (d.cost + took/time.Duration(edits)) / 2
	}
}

// took is called when what waited begins to be planned; it returns how long the oldest of it waited.
func (d *debounce) took(now time.Time) time.Duration {
	waited := now.Sub(d.first)
	d.first, d.newest, d.planned, d.edits = time.Time{}, time.Time{}, now, 0
	return waited
}

// edge lets the first of a series pass at once, and the rest together once every `every`.
type edge struct {
	every   time.Duration
	waits   bool
	planned time.Time
}

func (e *edge) due(now time.Time) (time.Duration, bool) {
	if !e.waits {
		return 0, false
	}
	return e.planned.Add(e.every).Sub(now), true
}

func (e *edge) took(now time.Time) { e.waits, e.planned = false, now }
