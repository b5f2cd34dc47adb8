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
	"math"
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
	busyGarbage = 64 << 20 // bytes beyond CalmPercent of what lives
)

// A process is busy from that part of the processors on: where others need the processors too a storm does not get more. It is a reason for more garbage
// while at least so much comes in a step of what comes in bursts, or the configuration changes, and for a while after that. What else takes processor
// time, as handshakes of clients that never show a credential, is none.
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

// load is what the process takes of the processors. It has no clock.
type load struct {
	at  time.Time
	cpu time.Duration // that the process had used then
}

// busy says whether the process was busy since the last step, given the processor time that it has used so far, and that of all processors in a second.
func (l *load) busy(now time.Time, cpu, each time.Duration) bool {
	used, of := cpu-l.cpu, now.Sub(l.at)
	l.at, l.cpu = now, cpu
	return used.Seconds() >= busyPart*each.Seconds()*of.Seconds()
}

// collector is how much garbage may lie. It has no clock.
type collector struct {
	came Counts
	busy time.Time // when it was last busy with what came
}

// step is GOGC, given whether the process is busy in this moment, what came so far, and the bytes that live. Of a process that is busy with what comes more
// garbage may lie, within busyGarbage. Where what lives and as much garbage would take two thirds of the limit, memory is what there is little of: joins
// slow down from 0.8 of it on (shard/place).
func (c *collector) step(now time.Time, busy bool, came Counts, live, limit uint64) int {
	if busy && (came.Bursts-c.came.Bursts >= busyBurst || came.Edits != c.came.Edits) {
		c.busy = now
	}
	c.came = came
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

// heap is what the heap has, in bytes: what was live at the last collection, what there is beside that, and stacks.
type heap struct{ live, spare, stacks uint64 }

// read reads the samples that Run has.
func read(samples []metrics.Sample) heap {
	metrics.Read(samples)
	objects, free, live, stacks := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()
	return heap{live: live, spare: free + objects - min(live, objects), stacks: stacks}
}

// process decides about the garbage and about the free pages of one process. It has no clock.
type process struct {
	load
	gc    collector
	pages tidy
}

// step is GOGC, and whether to give memory back now.
func (p *process) step(now time.Time, cpu, each time.Duration, came Counts, h heap, limit uint64) (percent int, free bool) {
	busy := p.busy(now, cpu, each)
	return p.gc.step(now, busy, came, h.live+h.stacks, limit), p.pages.step(now, came.Bursts, busy, h.spare, h.live)
}

// Room is how many KiB of memory configuration may be estimated to take (store/weight) before single heavy records are left out: a third of the limit
// of this process (GOMEMLIMIT). The rest is for proxies, for what each scope has of its own, and for what is read and collected meanwhile. 0: there is no
// limit.
func Room() int {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return int(limit / 3 / 1024)
	}
	return 0
}

// Tenant returns how many MiB of that one tenant may take by default: for what it exports to other namespaces, and for what only its own proxies get. Every
// proxy is sent the first, so its delay bounds it before memory does: a twentieth of the limit of this process, at least 40; 128 where there is no limit. The
// second is a quarter of the limit, at least 128; 512 where there is none.
func Tenant() (exported, own int) {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return max(40, int(limit/20>>20)), max(128, int(limit/4>>20))
	}
	return 128, 512
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
	each := time.Duration(runtime.GOMAXPROCS(0)) * time.Second
	var state process
	percent := CalmPercent
	tick := time.NewTicker(time.Second / 4) // a storm of a few seconds is one
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			want, free := state.step(now, obs.ProcessorTime(), each, counts(), read(samples), uint64(debug.SetMemoryLimit(-1)))
			if want != percent {
				percent = want
				wire.TuneCollector(percent)
			}
			if free {
				debug.FreeOSMemory()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
