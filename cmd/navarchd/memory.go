package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Where the environment says nothing of GOGC, Go collects when the heap has grown by half, but not before it has grown by
// gcLeast: with a small heap it would collect every few megabytes while proxies join.
const (
	gcPercent = 50
	gcLeast   = 32 << 20 // bytes
)

// pacer sets GOGC as the live heap grows.
type pacer struct {
	off     bool // GOGC is set: the operator's word stands
	percent int  // that is set; 0: none yet
}

func newPacer() *pacer {
	_, set := os.LookupEnv("GOGC")
	return &pacer{off: set}
}

// next is the percentage for a live heap in bytes, and whether it is another one than before, by enough to tell Go, which
// stops the world for it.
func (p *pacer) next(live uint64) (percent int, changed bool) {
	percent = max(gcPercent, int(gcLeast*100/max(live, 1<<20)))
	if p.off || percent == p.percent || percent > gcPercent && max(percent, p.percent) < min(percent, p.percent)*5/4 {
		return percent, false
	}
	p.percent = percent
	return percent, true
}

// follow tells Go.
func (p *pacer) follow(live uint64) {
	if percent, changed := p.next(live); changed {
		debug.SetGCPercent(percent)
	}
}

// A storm of joins leaves garbage, grown stacks and free pages that Go would give back over many minutes. Once nobody has
// joined for a while they are given back at once, if it is worth the collection.
const (
	calmFor   = 2 * time.Second
	worthFree = 12 << 20 // bytes
	freeEvery = 30 * time.Second
)

// tidy is when to give memory back. It has no clock.
type tidy struct {
	joins   uint64
	changed time.Time // when joins was last another
	freed   time.Time
	due     bool
}

// step says whether to give memory back now, given the joins so far, and what could be freed at least.
func (t *tidy) step(now time.Time, joins uint64, spare uint64) bool {
	if joins != t.joins {
		t.joins, t.changed, t.due = joins, now, true
	}
	if !t.due || now.Sub(t.changed) < calmFor || now.Sub(t.freed) < freeEvery {
		return false
	}
	if spare < worthFree { // perhaps the last collection was in the middle of the storm: the next one will tell
		return false
	}
	t.due = false
	t.freed = now
	return true
}

// heap is what Go says of its memory, in bytes.
type heap struct {
	objects, free uint64
	live          uint64 // at the last collection
}

func readHeap(samples []metrics.Sample) heap {
	metrics.Read(samples)
	return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()}
}

// spare is how many bytes the heap has beside what was live at the last collection.
func (h heap) spare() uint64 { return h.free + h.objects - min(h.live, h.objects) }

// tend is the loop around pacer and tidy.
func (p *process) tend(ctx context.Context) error {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}}
	var state tidy
	pace := newPacer()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		h := readHeap(samples)
		pace.follow(h.live)
		select {
		case now := <-tick.C:
			if state.step(now, p.server.Joins(), h.spare()) {
				debug.FreeOSMemory()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
