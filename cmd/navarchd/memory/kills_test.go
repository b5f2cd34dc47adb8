package memory

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each kill for memory halves the memory for configuration down to a sixteenth. After an orderly time the
// whole memory is tried, later after each further kill, and the kills are forgotten if that succeeds.
func TestHistoryOfKills(t *testing.T) {
	const limit = 1000
	now := time.Unix(1000, 0)
	h := recall(mark{}, limit, now)
	used := uint64(0)
	orderlyFor := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(10 * time.Second)
			h.step(now, used, limit)
		}
	}
	restart := func() { h = recall(h.mark(now, limit), limit, now) }
	want := func(what string, halvings, kills int) {
		t.Helper()
		if h.halvings() != halvings || h.kills != kills {
			t.Errorf("%s: %d halvings and %d kills, want %d and %d", what, h.halvings(), h.kills, halvings, kills)
		}
	}
	used = nearPart*limit - 1
	orderlyFor(time.Hour)
	restart()
	want("killed while memory was not short", 0, 0)
	used = nearPart * limit
	orderlyFor(time.Minute)
	used = 0
	orderlyFor(nearFor)
	restart()
	want("killed long after memory was short", 0, 0)
	for i := range 8 {
		used = nearPart * limit
		orderlyFor(time.Minute)
		restart()
		want("killed", min(i+1, mostHalvings), i+1)
	}
	used = 0
	restart()
	want("killed for another reason", mostHalvings, 8)
	orderlyFor(orderly<<mostDoublings - time.Minute)
	want("before the whole is tried", mostHalvings, 8)
	orderlyFor(time.Minute)
	want("while the whole is tried", 0, 8)
	used = nearPart * limit
	orderlyFor(time.Minute)
	restart()
	want("killed while the whole is tried", mostHalvings, 9)
	h = recall(mark{Near: true, Limit: limit}, limit, now)
	want("one kill", 1, 1)
	used = nearPart * limit
	orderlyFor(10 * orderly)
	want("memory is still short", 1, 1)
	used = 0
	orderlyFor(orderly)
	want("while the whole is tried", 0, 1)
	orderlyFor(orderly)
	want("after it", 0, 0)
	if h = recall(mark{Kills: 3, Near: true, Limit: limit}, 2*limit, now); h.halvings() != 0 {
		t.Errorf("with another limit: %d halvings", h.halvings())
	}
}

// The mark stays while memory is short and after a kill. It is gone after an orderly end. The room is halved by a start
// that finds it, and whole again after an orderly time.
// Promise: tenants.md#after-a-kill-for-memory
func TestKills(t *testing.T) {
	ballast := make([]byte, 64<<20) // more than nearPart of the first limit
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(48 << 20))
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the limit alone would keep the collector busy
	dir := t.TempDir()
	file := filepath.Join(dir, "memory")
	marked := func(want string) {
		t.Helper()
		if raw, _ := os.ReadFile(file); !strings.Contains(string(raw), want) || (want == "") != (len(raw) == 0) {
			t.Errorf("the mark is %q, want %q", raw, want)
		}
	}
	run := func(t *testing.T, k *Kills, resized func(int)) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx, resized) }()
		time.Sleep(time.Second)
		synctest.Wait()
		return func() { cancel(); <-done }
	}
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		k := OpenKills(dir, log)
		if k.Room() != 16<<10 || k.Problem() != "" {
			t.Errorf("at first: %d KiB, %s", k.Room(), k.Problem())
		}
		stop := run(t, k, nil)
		marked(`"near":true`)
		killed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		marked("")
		if k = OpenKills(dir, log); k.Room() != 16<<10 {
			t.Errorf("after an orderly end: %d KiB", k.Room())
		}
		if err := os.WriteFile(file, killed, 0o600); err != nil { // as the kernel's kill leaves it
			t.Fatal(err)
		}
		k = OpenKills(dir, log)
		marked(`"kills":1,"near":false`)
		if k.Room() != 8<<10 || !strings.Contains(k.Problem(), "at most 8 MiB of configuration, 1/2 of the usual bound") {
			t.Errorf("after a kill: %d KiB, %s", k.Room(), k.Problem())
		}
		k.limit = 1 << 40 // memory is not short any more
		var resized []int
		planned := make(chan struct{})
		stop = run(t, k, func(kib int) { resized = append(resized, kib); <-planned })
		time.Sleep(orderly)
		synctest.Wait()
		if len(resized) != 1 || resized[0] != k.Room() || k.Room() != 1<<30/3 || k.Problem() != "" {
			t.Errorf("after an orderly time: resized to %d KiB, %d KiB, %s", resized, k.Room(), k.Problem())
		}
		marked(`"kills":1,"near":false`)
		k.limit = 48 << 20 // memory becomes short while the whole is planned
		time.Sleep(time.Second)
		synctest.Wait()
		marked(`"kills":1,"near":true`)
		k.limit = 1 << 40
		close(planned)
		time.Sleep(orderly)
		synctest.Wait()
		marked("")
		stop()
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if k = OpenKills(dir, log); k.Room() != 16<<10 {
			t.Errorf("with a damaged mark: %d KiB", k.Room())
		}
		marked("")
	})
	ballast[0] = 1
}
