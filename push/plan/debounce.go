package plan

import "time"

// debounce says when what was noted is due. It has no clock: the caller says what time it is.
//
// A change is planned once nothing followed it for a quarter of `after`; each one that follows doubles that quiet time,
// up to `after`, and soon after a plan it begins there: a lone edit is quick, and fifty at once are one plan. Nothing
// waits longer than `most`.
type debounce struct {
	after, most time.Duration
	first, last time.Time     // of what waits; zero: nothing does
	planned     time.Time     // the last time something was due
	quiet       time.Duration // that has to pass after last
}

func (d *debounce) note(now time.Time) {
	switch {
	case d.first.IsZero():
		d.first, d.quiet = now, d.after/4
		if !d.planned.IsZero() && now.Sub(d.planned) < d.after {
			d.quiet = d.after
		}
	default:
		d.quiet = min(2*d.quiet, d.after)
	}
	d.last = now
}

// due is how long to wait from now, not above 0: it is due. False: nothing waits.
func (d *debounce) due(now time.Time) (time.Duration, bool) {
	if d.first.IsZero() {
		return 0, false
	}
	at := d.last.Add(d.quiet)
	if end := d.first.Add(d.most); end.Before(at) {
		at = end
	}
	return at.Sub(now), true
}

// took is called when what waited is planned; it returns how long the oldest of it waited.
func (d *debounce) took(now time.Time) time.Duration {
	waited := now.Sub(d.first)
	d.first, d.last, d.planned = time.Time{}, time.Time{}, now
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
