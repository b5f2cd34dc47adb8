//go:build race

package plan_test

import "testing"

// A preview and the planner share what is planned, in two goroutines; the race detector checks them at the beginning of
// one history.
func TestPreviewsBeside(t *testing.T) { predict(t, 1, 6) }
