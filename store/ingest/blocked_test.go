package ingest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/watchdog"
)

// A callback that blocks the ingester is found.
func TestBlockedCallbacksAreFound(t *testing.T) {
	blocks := func() { time.Sleep(watchdog.Limit + time.Second) }
	const loop, commit = "ingest: Referred, Named, KeySets", "ingest: Committed"
	for name, c := range map[string]struct {
		Config
		want string
	}{
		"Committed": {Config{Committed: func(int64, time.Time, time.Time, kv.Batch) { blocks() }}, commit},
		"Referred":  {Config{Options: Options{SecretUses: gatewayUses}, Referred: func([]object.Reference) { blocks() }}, loop},
		"Named":     {Config{Named: func([]string, bool) { blocks() }}, loop},
		"KeySets":   {Config{KeySets: func([]object.ID, bool) { blocks() }}, loop},
	} {
		blocked := watchdog.Caught(t)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				epoch := kv.Epoch{Key: "leader", Revision: 3}
				c.Store = &memory{leader: epoch, records: map[model.Key][]byte{}}
				l := New(c.Config)
				run(t, l)
				l.Emit([]object.Event{podOf(t, "in", "p", "web", "True"), gateway(t, "g", "web", "s"), synced})
				l.Gained(epoch)
				time.Sleep(time.Minute)
			})
		})
		if got := blocked(); !slices.Contains(got, c.want) || len(slices.Compact(got)) != 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
}
