//go:build race

package plan

import "testing"

// A planner has one goroutine. Two planners meet in what they have in common, lists that are interned above all, which the race detector finds in the
// beginning of two histories; the comparisons are made without it.
func TestPlanMatchesFreshSideBySide(t *testing.T) { matchesFreshIn(t, 2, 8, 4) }
