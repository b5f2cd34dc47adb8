package clock

import (
	"slices"
	"time"
)

// middle returns the median of all clocks as an offset to this one. ahead has the offsets of the other clocks, in any
// order. For an even number of clocks, low and high are the two offsets in the middle; otherwise they are equal. So two
// of three clocks outvote a wrong one, while two clocks that differ leave open which is wrong.
func middle(ahead []time.Duration) (low, high time.Duration) {
	all := append(slices.Clone(ahead), 0)
	slices.Sort(all)
	return all[(len(all)-1)/2], all[len(all)/2]
}
