//go:build race

package plan

import "testing"

// The race detector finds in half a history what it finds in many, and most of the comparisons are made without it.
func TestPlanMatchesFreshInOneHistory(t *testing.T) { matchesFreshIn(t, 1, 30, 15) }
