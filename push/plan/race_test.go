//go:build race

package plan

import "testing"

// A planner runs in one goroutine. Two planners share interned lists and other values; the race detector checks these
// at the beginning of two histories. The comparisons themselves are made without the race detector.
func TestPlanMatchesFreshSideBySide(t *testing.T) { matchesFreshIn(t, 2, 8, 4) }
