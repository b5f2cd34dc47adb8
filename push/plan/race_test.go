//go:build race

package plan

import "testing"

// The race detector finds in a few histories what it finds in many, and most of the comparisons are made without it.
func TestPlanMatchesFreshInFewHistories(t *testing.T) { matchesFreshIn(t, 2, 15) }
