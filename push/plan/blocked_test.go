package plan

import (
	"context"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/store/watchdog"
)

// The watchdog reports a callback that blocks the loop: one that notifies a proxy of a plan, and one that observes
// plans.
func TestBlockedCallbacksAreFound(t *testing.T) {
	blocks := func() { time.Sleep(watchdog.Limit + time.Second) }
	for call, c := range map[string]struct {
		planned func(int64, Path, time.Time, int, int)
		moved   func(Path)
	}{
		"plan: Planned": {planned: func(int64, Path, time.Time, int, int) { blocks() }},
		"plan: moved":   {moved: func(Path) { blocks() }},
	} {
		blocked := watchdog.Caught(t)
		inBubble(t, Config{Planned: c.planned}, func(t *testing.T, l *Loop, src *testSource) {
			src.put(shop(t)...)
			if _, err := l.Join(context.Background(), node("shop", "a"), c.moved); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			src.put(eps(t, "shop/web-1", "{name: http, number: 8080}", "10.1.0.2"))
			pass(time.Minute)
		})
		if got := blocked(); !slices.Contains(got, call) || len(slices.Compact(got)) != 1 {
			t.Errorf("%s: %q", call, got)
		}
	}
}
