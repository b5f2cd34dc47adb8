package plan

import (
	"testing"
	"time"
)

// Continuous edits are planned in slices, with a pause after each, if planning all at once would take long; otherwise
// all together.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestGreatPlansAreSliced(t *testing.T) {
	for name, c := range map[string]struct {
		every   int           // milliseconds between two commits; a commit has an edit for each of them
		cost    time.Duration // of one edit
		longest int           // the largest number of edits planned at once, at 1,000 edits a second
		plans   int           // the largest number of plans in 20 s
		most    time.Duration
	}{
		"cheap":              {1, 10 * time.Microsecond, 3_100, 7, 10 * time.Second},
		"a tenth of it":      {1, 100 * time.Microsecond, 320, 70, 10 * time.Second},
		"dear":               {1, 300 * time.Microsecond, 3_000, 25, 10 * time.Second},
		"all of it":          {1, time.Millisecond, 6_000, 10, 10 * time.Second}, // planning needs all the time: edits wait up to `most`
		"dear, in gaps":      {200, 300 * time.Microsecond, 3_000, 25, 10 * time.Second},
		"dear, with a bound": {1, 300 * time.Microsecond, 800, 60, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			d := debounce{after: 100 * time.Millisecond, most: c.most}
			d.cost = c.cost
			longest, plans, waiting, planning := 0, 0, 0, 0 // planning: remaining milliseconds of the plan in progress
			busy := 0
			start := time.Unix(0, 0)
			for ms := range 20_000 {
				now := start.Add(time.Duration(ms) * time.Millisecond)
				if ms%c.every == 0 {
					waiting += c.every
					d.note(now, waiting, false)
				}
				if planning > 0 {
					if planning == 1 {
						d.spent(now, busy, time.Duration(busy)*c.cost)
					}
					planning--
					continue
				}
				if in, waits := d.due(now); waits && in <= 0 {
					d.started(now)
					busy, planning = waiting, max(1, int(time.Duration(waiting)*c.cost/time.Millisecond))
					longest, plans, waiting = max(longest, waiting), plans+1, 0
				}
			}
			if longest > c.longest || plans > c.plans || plans == 0 {
				t.Errorf("%d plans, the greatest of %d edits; want at most %d plans and %d edits", plans, longest, c.plans, c.longest)
			}
		})
	}
}
