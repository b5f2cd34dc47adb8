// Package memory keeps the memory of a process small: it sets how much garbage may accumulate, by how busy the process is, and returns pages
// to the system after a burst (of joins at a replica, or of objects that a leader reads).
//
// It is a control loop on the load of this machine, made for one fault: after a storm of joins a replica keeps for minutes the memory that the
// storm needed, and its container is sized for that. Its figure is the scenario `memory` of the load harness: resident memory per proxy, with
// the processor time per proxy beside it. navarchd leaves Go's own settings where NAVARCH_EXPERIMENT_OFF has `collector`; `make experiment
// LOOP=collector` plays the scenario with and without, in turns, and prints the medians of both. It stays as long as it gains a tenth of that.
//
// Owns: GOGC of the process.  Reads: the Go runtime's own measures, processor time, counts of what comes.  Never: sets the limit of memory.
package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"navarch.io/navarch/cmd/internal/wire"
	"navarch.io/navarch/store/obs"
)

// Go's GOGC where the environment says nothing: how much garbage may lie beside what lives. A calm replica should be small
// (measured with 1,000 proxies: 13 % less memory with 50 than with 100); of a busy one the collector takes an eighth of the
// processor time with 50, half of that with 100, and 200 gains little more.
//
// What lies more because of that is bounded: clients can keep a replica busy, and it must not take hundreds of megabytes more by that (issue
// 12, "Done when": 128 MB under attack).
const (
	CalmPercent = 50 // also of a process that has just started
	busyPercent = 100
	busyGarbage = 32 << 20 // bytes beyond CalmPercent of what lives
)

// A process is busy from that part of the processors on, while at least so much comes in a step of what comes in bursts, or the configuration changes,
// and until it has used less for a while. Where others need the processors too a storm does not get more. What else takes processor time, as handshakes
// of clients that never show a credential, is no reason for more memory.
const (
	busyPart  = .1
	busyBurst = 2
	calmDown  = 5 * time.Second
)

// Counts are what came so far.
type Counts struct {
	Bursts uint64 // of what leaves much memory unused when much of it comes at once: streams that were opened, thousands of objects that were read
	Edits  uint64 // changes of the configuration; more for a larger one, at least one for each
}

// collector is how much garbage may lie. It has no clock.
type collector struct {
	at   time.Time
	cpu  time.Duration // that the process had used then
	came Counts
	busy time.Time // when it was last
}

// step is GOGC, given the processor time that the process has used so far, that of all processors in a second, what came so far, and the bytes that
// live. Of a busy process more garbage may lie, within busyGarbage. Where what lives and as much garbage would take two thirds
// of the limit, memory is what there is little of: joins slow down from 0.8 of it on (shard/place).
func (c *collector) step(now time.Time, cpu, each time.Duration, came Counts, live, limit uint64) int {
	much := came.Bursts-c.came.Bursts >= busyBurst || came.Edits != c.came.Edits
	if used := cpu - c.cpu; much && used.Seconds() >= busyPart*each.Seconds()*now.Sub(c.at).Seconds() {
		c.busy = now
	}
	c.at, c.cpu, c.came = now, cpu, came
	if c.busy.IsZero() || now.Sub(c.busy) >= calmDown || live > limit/3 {
		return CalmPercent
	}
	return min(busyPercent, CalmPercent+int(100*busyGarbage/max(1, live)/percentStep*percentStep))
}

// percentStep is the step in percent in which it changes: what lives changes all the time.
const percentStep = 5

// A burst leaves garbage, grown stacks and free pages that Go would give back over many minutes. Once it has been over for a while, and the process
// is not busy with something else, they are given back at once, if it is worth the collection: in the middle of work that would hold it up, and the pages
// would be wanted again.
const (
	calmFor   = 2 * time.Second
	worthFree = 12 << 20 // bytes; of a small process an eighth of what lives
	freeEvery = 30 * time.Second
)

// worth is how many bytes must be spare for a collection of what lives to be worth its time, which grows with what lives.
func worth(live uint64) uint64 { return min(worthFree, live/8) }

// tidy is when to give memory back. It has no clock.
type tidy struct {
	burst   uint64
	changed time.Time // when burst was last another, or the process busy
	freed   time.Time
	due     bool
}

// step says whether to give memory back now, given the count of what comes in bursts, whether the process is busy in this moment, and what could be
// freed at least, and what lives, in bytes.
func (t *tidy) step(now time.Time, burst uint64, busy bool, spare, live uint64) bool {
	if burst != t.burst {
		t.burst, t.due = burst, true
		busy = true
	}
	if busy {
		t.changed = now
	}
	if !t.due || now.Sub(t.changed) < calmFor || now.Sub(t.freed) < freeEvery {
		return false
	}
	if spare < worth(live) { // perhaps the last collection was in the middle of the burst: the next one will tell
		return false
	}
	t.due = false
	t.freed = now
	return true
}

// spare is how many bytes the heap has beside what was live at the last collection.
func spare(samples []metrics.Sample) uint64 {
	metrics.Read(samples)
	objects, free, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return free + objects - min(live, objects)
}

// defaultPercent is Go's own GOGC.
const defaultPercent = 100

// Run is the loop around both, until ctx ends; the count of bursts is not to go on changing where little comes. off: nothing is steered, and Go's own
// default holds: to measure what the loop is worth. There is never an error.
func Run(ctx context.Context, counts func() Counts, off bool) error {
	if off {
		wire.TuneCollector(defaultPercent)
		<-ctx.Done()
		return nil
	}
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}}
	var state tidy
	var gc collector
	percent := CalmPercent
	tick := time.NewTicker(time.Second / 4) // a storm of a few seconds is one
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			came, free := counts(), spare(samples)
			live := samples[2].Value.Uint64() + samples[3].Value.Uint64()
			each := time.Duration(runtime.GOMAXPROCS(0)) * time.Second
			if want := gc.step(now, obs.ProcessorTime(), each, came, live, uint64(debug.SetMemoryLimit(-1))); want != percent {
				percent = want
				wire.TuneCollector(percent)
			}
			if state.step(now, came.Bursts, gc.busy.Equal(now), free, samples[2].Value.Uint64()) {
				debug.FreeOSMemory()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
