package clock

import (
	"slices"
	"time"
)

// middle is where the middle of all clocks lies, this one included, of which the others are ahead by so much: the same twice where
// their number is odd, else between the two in the middle. So one of three that is wrong does not matter to the two, and of two that
// differ nobody can tell which.
func middle(ahead []time.Duration) (low, high time.Duration) {
	all := append(slices.Clone(ahead), 0)
	slices.Sort(all)
	return all[(len(all)-1)/2], all[len(all)/2]
}
