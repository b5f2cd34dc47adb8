package budget

import (
	"testing"
	"time"
)

// The source is queried for the workloads of a heavy identity once in ten seconds, and again after that, so that the
// limit grows with them.
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

// The default limits of an identity are the figures of deploy/docs/security-limits.md.
func TestDefaultLimits(t *testing.T) {
	want := Limits{Workload: 8, Least: 1024, PerKnown: 4, Names: 32 << 20, NamesPerKnown: 4 << 10, NamesFree: 16 << 10,
		Messages: 128 << 20, MessagesPerKnown: 512 << 10, MessagesPerCredential: 16 << 20, MessagesInAll: 512 << 20,
		Work: 20_000, WorkInAll: 100_000, WorkPerKnown: 20, Asks: 4}
	if got := New(Config{}).cfg.Limits; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A stream that has ended may not join, and uses up the pace of neither its credential nor its identity.
func TestEndedStreamsDoNotJoin(t *testing.T) {
	w := newBudgetTest(t, Limits{Least: 100})
	s, gone := w.open(Holder{Credential: "a"}, "n"), w.open(Holder{Credential: "a"}, "n")
	gone.Leave()
	for range joinsBurst + 100 {
		if gone.Join() == nil {
			t.Fatal("it joins")
		}
	}
	for i := range joinsBurst + 100 {
		if err := s.Join(); err != nil {
			t.Fatalf("join %d of the other stream: %v", i, err)
		}
	}
}
