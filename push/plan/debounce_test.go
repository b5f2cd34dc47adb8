package plan

import (
	"testing"
	"time"
)

// Edits without end are planned in slices when planning them at once would take long, and all together when it would not.
func TestGreatPlansAreSliced(t *testing.T) {
	for name, c := range map[string]struct {
		cost    time.Duration // of one edit
		longest int           // edits planned at once, of 1,000 a second
		plans   int           // in 20 s, at most
	}{
		"cheap": {10 * time.Microsecond, 10_100, 20},
		"dear":  {time.Millisecond, 60, 20 * 40},
	} {
		t.Run(name, func(t *testing.T) {
			d := debounce{after: 100 * time.Millisecond, most: 10 * time.Second}
			d.cost = c.cost
			longest, plans, waiting := 0, 0, 0
			now := time.Unix(0, 0)
			for range 20_000 {
				now = now.Add(time.Millisecond)
				waiting++
				d.note(now, waiting)
				if in, waits := d.due(now); waits && in <= 0 {
					d.took(now)
					d.spent(waiting, time.Duration(waiting)*c.cost)
					longest, plans, waiting = max(longest, waiting), plans+1, 0
				}
			}
			if longest > c.longest || plans > c.plans || plans == 0 {
				t.Errorf("%d plans, the greatest of %d edits; want at most %d plans and %d edits", plans, longest, c.plans, c.longest)
			}
		})
	}
}
