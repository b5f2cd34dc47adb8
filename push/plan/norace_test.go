//go:build !race

package plan

import (
	"flag"
	"testing"
)

// histories is how many random histories the planner goes through. `make histories` goes through more of them, as is due where the plan has changed.
var histories = flag.Int("histories", 6, "random histories that the planner is compared in")

// With the race detector it takes several times as long (TestPlanMatchesFreshSideBySide).
func TestPlanMatchesFresh(t *testing.T) { matchesFreshIn(t, *histories, 60, 1) }
