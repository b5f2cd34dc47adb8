//go:build !race

package plan

import (
	"flag"
	"testing"
)

// histories is the number of random histories that the planner is compared in. After a change of the plan, run more of
// them with `make histories`.
var histories = flag.Int("histories", 6, "random histories that the planner is compared in")

// With the race detector it needs several times as long (see TestPlanMatchesFreshSideBySide).
func TestPlanMatchesFresh(t *testing.T) { matchesFreshIn(t, *histories, 60, 1) }
