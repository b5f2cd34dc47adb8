//go:build !race

package plan

import "testing"

// With the race detector it takes several times as long (TestPlanMatchesFreshInFewHistories).
func TestPlanMatchesFresh(t *testing.T) { matchesFreshIn(t, 24, 1) }
