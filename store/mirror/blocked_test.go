package mirror_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/watchdog"
)

// A hook that blocks the mirror is found.
func TestBlockedHooksAreFound(t *testing.T) {
	blocks := func() { time.Sleep(watchdog.Limit + time.Second) }
	for name, c := range map[string]struct {
		hooks mirror.Hooks
		of    func(*fake) // the event that calls the hook
	}{
		"Published": {mirror.Hooks{Published: func(mirror.Change) { blocks() }}, func(*fake) {}},
		"Relisted":  {mirror.Hooks{Relisted: blocks}, func(*fake) {}},
		"Held": {mirror.Hooks{Held: func([]mirror.Held) { blocks() }}, func(f *fake) {
			f.state.Said, f.state.Contents = kv.NewContents(), kv.ContentsOf(f.state.Values)
			f.state.Head.Contents = f.state.Said
		}},
		"Problems": {mirror.Hooks{Problems: func([]mirror.Problem) { blocks() }}, func(f *fake) { f.state.Values[0].Raw = []byte("no record") }},
		"Alarm": {mirror.Hooks{Alarm: func(error) { blocks() }}, func(f *fake) {
			for range 5 {
				f.stats <- kv.Stat{Cluster: 2, Revision: 10}
			}
		}},
		"Contact": {mirror.Hooks{Contact: func(error) { blocks() }}, func(*fake) {}},
	} {
		blocked := watchdog.Caught(t)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c.of(f)
				m, err := mirror.New(mirror.Config{Source: f, Hooks: c.hooks})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- m.Run(ctx) }()
				time.Sleep(time.Minute)
				cancel()
				<-ended
			})
		})
		if got := slices.Compact(blocked()); !slices.Equal(got, []string{"mirror: hooks"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
