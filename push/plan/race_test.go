//go:build race

package plan

import "testing"

// The race detector finds in a few histories what it finds in many.
func TestPlanMatchesFreshInFewHistories(t *testing.T) { matchesFreshIn(t, 2) }
