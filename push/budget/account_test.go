package budget

import (
	"testing"
	"time"
)

// Who asks for much does not have the source asked for its workloads as often: once in ten seconds, and then again, so that the cap grows with them.
func TestWorkloadsAreAskedForOnceInTenSeconds(t *testing.T) {
	w := newBudgetTest(t, Limits{Least: 2})
	w.open(Holder{Credential: "a"}, "a") // half of what it may have: from here on it is asked
	for _, step := range []struct {
		after time.Duration
		asked int
	}{{0, 1}, {0, 1}, {10*time.Second - 1, 1}, {1, 2}, {0, 2}} {
		w.now = w.now.Add(step.after)
		if w.open(Holder{Credential: "b"}, "b"); w.asked != step.asked {
			t.Errorf("after %v more: asked %d times, want %d", step.after, w.asked, step.asked)
		}
	}
}
