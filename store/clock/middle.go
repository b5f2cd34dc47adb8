package clock

import (
	"slices"
	"time"
)

// middle returns the median of all clocks, as an offset from this clock. The parameter ahead has the offsets of the
// other clocks, in any order. For an even number of clocks, low and high are the two offsets in the middle; otherwise
// low and high are equal. So a single wrong clock among three has no effect. If two clocks differ, either may be wrong.
func middle(ahead []time.Duration) (low, high time.Duration) {
	all := append(slices.Clone(ahead), 0)
	slices.Sort(all)
	return all[(len(all)-1)/2], all[len(all)/2]
}
