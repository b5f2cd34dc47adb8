package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/obs"
)

// A kill for memory is an end of the process without an orderly stop, at most nearFor after its memory was at least
// nearPart of Go's memory limit. Each further kill halves the memory for configuration, down to 1/2^mostHalvings.
//
// The whole memory is tried again after a period without short memory. The period lasts 10 minutes (the constant
// orderly) after one kill, and twice as long after each further kill. If memory does not become short for another 10
// minutes, the kills are forgotten. Thus configuration that kills the process whenever it is planned is tried less and
// less often.
const (
	nearPart      = .85
	nearFor       = time.Minute
	mostHalvings  = 4
	orderly       = 10 * time.Minute
	mostDoublings = 6 // bounds the time until the whole memory is tried to about 11 hours
)

// mark is the content of the mark file. It tells the next start how this process ended.
type mark struct {
	Kills int   `json:"kills"` // successive kills for memory before this process
	Near  bool  `json:"near"`  // the memory was recently near the limit
	Limit int64 `json:"limit"` // Go's memory limit in bytes; another limit makes the mark void
}

// history decides how the kills of earlier processes bound this one. Its callers pass the time.
type history struct {
	kills int
	near  time.Time // last time when memory was near the limit; zero: never
	calm  time.Time // begin of the present period without short memory
	whole bool      // the whole memory is tried
}

// recall returns the history after the mark of the previous process.
func recall(m mark, limit int64, now time.Time) history {
	h := history{calm: now, whole: true}
	if m.Limit != limit {
		return h
	}
	if h.kills = m.Kills; m.Near {
		h.kills++
	}
	h.whole = h.kills == 0
	return h
}

// step applies a measurement: used is the memory of the process, and limit is Go's limit.
func (h *history) step(now time.Time, used, limit uint64) {
	if float64(used) >= nearPart*float64(limit) {
		h.near, h.calm = now, now
		return
	}
	if h.kills == 0 || now.Sub(h.calm) < h.pause() {
		return
	}
	if h.calm = now; h.whole {
		h.kills = 0
	}
	h.whole = true
}

// pause returns the length of the period without short memory, after which the whole memory is tried. If the whole
// memory is tried already, the kills are forgotten after this period.
func (h *history) pause() time.Duration {
	if h.whole {
		return orderly
	}
	return orderly << min(h.kills-1, mostDoublings)
}

// halvings returns how often the memory for configuration is halved.
func (h *history) halvings() int {
	if h.whole {
		return 0
	}
	return min(h.kills, mostHalvings)
}

// mark returns the content of the mark file at a time.
func (h *history) mark(now time.Time, limit int64) mark {
	return mark{Kills: h.kills, Near: !h.near.IsZero() && now.Sub(h.near) < nearFor, Limit: limit}
}

// Kills bounds the memory for configuration after the kernel has killed the process because of its memory. It reads and
// writes a mark file, which exists while memory is short or kills are not forgotten. An orderly end removes the file.
type Kills struct {
	path    string // of the mark file
	limit   int64  // Go's memory limit; math.MaxInt64: none
	log     *slog.Logger
	history history
	written mark
	halved  atomic.Int32 // how often the memory for configuration is halved
}

// OpenKills reads the mark file in dir, the folder of --state-dir, which must exist. Without a folder ("") or without a
// memory limit, kills are not noticed. An unreadable mark is logged, and stands for no kill.
func OpenKills(dir string, log *slog.Logger) *Kills {
	k := &Kills{limit: debug.SetMemoryLimit(-1), log: log, history: history{whole: true}}
	if dir == "" || k.limit == math.MaxInt64 {
		return k
	}
	k.path = filepath.Join(dir, "memory")
	var last mark
	raw, err := durable.Read(k.path, 1<<10)
	if err == nil {
		err = json.Unmarshal(raw, &last)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the mark of kills for memory is not read; this replica plans as if it had not been killed",
			obs.KeyName, k.path, obs.KeyError, err)
	}
	k.history, k.written = recall(last, k.limit, time.Now()), last
	if k.apply(); k.history.kills > 0 {
		log.Warn("the previous process was killed while its memory was short; this replica plans with less memory for configuration. "+
			"See tenants.md#after-a-kill-for-memory", "kills", k.history.kills, "room_kib", k.Room())
	}
	k.store(time.Now())
	return k
}

// Room returns the memory, in KiB, that the planned configuration may take. Beyond this limit, single heavy records are
// left out of the configuration. The result is a third of Go's memory limit of this process (GOMEMLIMIT). After kills
// for memory it is halved, up to four times (Kills). It is 0 without a memory limit, which means that the configuration
// is not limited.
func (k *Kills) Room() int {
	if k.limit == math.MaxInt64 {
		return 0
	}
	return int(k.limit/3/1024) >> k.halved.Load()
}

// Problem returns a text for operators while the memory for configuration is reduced, and otherwise "".
func (k *Kills) Problem() string {
	n := k.halved.Load()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("this replica was killed while its memory was short, so it plans with at most %d MiB of configuration, 1/%d of the "+
		"usual bound, and leaves out single heavy objects beyond it. Remove or split the objects that are left out, or raise the memory "+
		"limit. The usual bound applies again after some time without short memory, or after an orderly restart", k.Room()/1024, 1<<n)
}

// apply publishes the halvings of the history. It reports whether they have changed.
func (k *Kills) apply() bool {
	n := int32(k.history.halvings())
	obs.MemoryKills.Set(float64(k.history.kills))
	return k.halved.Swap(n) != n
}

// store writes the mark file if its content changes, and removes it if no kills are remembered and memory is not short.
// The file is not synced, because the mark must outlive the process, and not the machine.
func (k *Kills) store(now time.Time) {
	m := k.history.mark(now, k.limit)
	if k.path == "" || m == k.written {
		return
	}
	k.written = m
	if err := k.write(m); err != nil {
		k.log.Warn("the mark of a kill for memory is not written; a start after such a kill plans as usual",
			obs.KeyName, k.path, obs.KeyError, err)
	}
}

func (k *Kills) write(m mark) error {
	if m.Kills == 0 && !m.Near {
		if err := os.Remove(k.path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return durable.ReplaceUnsynced(k.path, 0o600, raw)
}

// Run measures the memory four times per second until ctx ends, and then removes the mark, because the end is orderly.
// If the result of Room changes, it calls resized in a goroutine, because memory is measured while configuration is
// planned. Run returns after the end of these calls. It always returns nil.
func (k *Kills) Run(ctx context.Context, resized func(kib int)) error {
	if k.path == "" {
		<-ctx.Done()
		return nil
	}
	var resizing sync.WaitGroup
	defer resizing.Wait()
	tick := time.NewTicker(time.Second / 4)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			k.history.step(now, obs.LimitedMemory(), uint64(k.limit))
			if k.store(now); k.apply() {
				kib := k.Room()
				k.log.Info("this replica plans with the usual memory for configuration again", "room_kib", kib)
				resizing.Go(func() { resized(kib) })
			}
		case <-ctx.Done():
			k.history = history{whole: true}
			k.store(time.Now())
			return nil
		}
	}
}
