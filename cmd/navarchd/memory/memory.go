// Package memory keeps the memory of a process small. While the process is busy, it permits more garbage. After a burst
// of work it returns unused memory to the system. A burst of work is many joins of proxies at a replica, or many
// objects that a leader reads.
//
// Without this control loop, a replica keeps the memory of a storm of joins for minutes, and its container must be
// sized for the storm. In a build with the tag experiment, NAVARCH_EXPERIMENT_OFF=collector disables the loop. The
// command "make experiment LOOP=collector" compares the resident memory and the processor time per proxy with and
// without the loop.
//
// The package also notices when the process was killed because of its memory, and then bounds the planned configuration
// (Kills).
//
// Owns: GOGC of the process, and the file memory in --state-dir.
// Reads: the Go runtime's own measures, processor time, counts of work.
// Never: sets the memory limit.
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

// Values of GOGC (garbage in percent of the live heap). They apply if the environment does not set GOGC. A calm replica
// should be small: a replica with 1,000 proxies takes 13 % less memory with 50 than with 100. With 50, the garbage
// collector of a busy replica takes an eighth of the processor time. With 100 it takes half of that, and with 200
// little less.
//
// The additional garbage is bounded (busyGarbage), because clients can keep a replica busy.
const (
	CalmPercent = 50       // of a process that is not busy, or has just started
	busyPercent = 100      // upper bound for a busy process
	busyGarbage = 64 << 20 // bytes of garbage that a busy process may have beyond CalmPercent of the live heap
)

// A process is busy if it uses at least the fraction busyPart of the processors. A storm of joins gets this fraction
// even on a shared machine. A busy process may have more garbage only while new work arrives, and for calmDown
// afterwards. New work is at least busyBurst units of Counts.Bursts per step, or a change of Counts.Edits. Other
// processor time, such as handshakes of clients without a credential, does not permit more garbage.
const (
	busyPart  = .1
	busyBurst = 2
	calmDown  = 5 * time.Second
)

// Counts are the amounts of work since the process started. They never decrease.
type Counts struct {
	// Bursts counts units of work that leaves unused memory if many units come at once. One unit is an opened stream,
	// or thousands of objects that were read.
	Bursts uint64
	Edits  uint64 // changes of the configuration; a large change counts several times
}

// load measures the process's use of the processors. Its callers pass the time.
type load struct {
	at  time.Time
	cpu time.Duration // used by the process at that time
}

// busy reports whether the process was busy since the last step. The parameter cpu is the processor time that the
// process has used so far. The parameter each is the processor time that all its processors provide in one second.
func (l *load) busy(now time.Time, cpu, each time.Duration) bool {
	used, of := cpu-l.cpu, now.Sub(l.at)
	l.at, l.cpu = now, cpu
	return used.Seconds() >= busyPart*each.Seconds()*of.Seconds()
}

// collector decides the permitted garbage. Its callers pass the time.
type collector struct {
	came Counts
	busy time.Time // last time when the process was busy with counted work
}

// step returns GOGC. The parameter came is the work so far; live and limit are the live bytes and the memory limit. A
// process that is busy with counted work may have more garbage than CalmPercent, within busyGarbage. It may not have
// more if live is above a third of limit. With 100 % of garbage, such a process would take two thirds of the limit, and
// a replica admits proxies more slowly near the limit.
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

// percentStep is the smallest change of GOGC. It avoids a change of GOGC at each step, since the live heap changes all
// the time.
const percentStep = 5

// A burst leaves garbage, grown stacks and free pages, which Go would return over many minutes. The process returns
// this memory once it has not been busy for calmFor, if at least worth(live) bytes can be freed. A collection during
// work would delay the work, and the pages would be needed again.
const (
	calmFor   = 2 * time.Second
	worthFree = 12 << 20         // bytes that justify a collection; fewer for a small process (worth)
	freeEvery = 30 * time.Second // least time between two returns of memory
)

// worth returns the least number of spare bytes that justifies a collection. live is the size of the live heap in
// bytes.
func worth(live uint64) uint64 { return min(worthFree, live/8) }

// tidy decides when to return memory to the system. Its callers pass the time.
type tidy struct {
	burst   uint64
	changed time.Time // last time at which burst changed or the process was busy
	freed   time.Time // last time at which memory was returned
	due     bool      // a burst came after freed
}

// step reports whether to return memory now. burst is the count of bursts. spare is the least number of bytes that a
// collection would free. live is the number of live bytes.
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
	if spare < worth(live) { // due stays true: spare is from the last collection, which may have run during the burst
		return false
	}
	t.due = false
	t.freed = now
	return true
}

// heap has sizes in bytes: the live memory at the last collection, the spare memory (garbage or free), and the stacks.
type heap struct{ live, spare, stacks uint64 }

// read returns the present sizes. It updates samples, which have the order of Run.
func read(samples []metrics.Sample) heap {
	metrics.Read(samples)
	objects, free, live, stacks := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()
	return heap{live: live, spare: free + objects - min(live, objects), stacks: stacks}
}

// process decides about the garbage and the free pages of this process. Its callers pass the time.
type process struct {
	load
	gc    collector
	pages tidy
}

// step returns GOGC, and whether to return memory now.
func (p *process) step(now time.Time, cpu, each time.Duration, came Counts, h heap, limit uint64) (percent int, free bool) {
	busy := p.busy(now, cpu, each)
	return p.gc.step(now, busy, came, h.live+h.stacks, limit), p.pages.step(now, came.Bursts, busy, h.spare, h.live)
}

// Tenant returns the default limits on the memory that one tenant may take, in MiB. exported bounds the tenant's
// exports to other namespaces: a twentieth of Go's memory limit of this process, at least 40, and 128 without a limit.
// The limit exported is small because every proxy is sent the exports, which delays updates. own bounds the
// configuration that only the tenant's own proxies get: a quarter of the limit, at least 128, and 512 without a limit.
func Tenant() (exported, own int) {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return max(40, int(limit/20>>20)), max(128, int(limit/4>>20))
	}
	return 128, 512
}

// defaultPercent is Go's default of GOGC.
const defaultPercent = 100

// Run adjusts the garbage collector (GOGC) four times per second, and returns memory to the system after bursts, until
// ctx ends. The caller must have set GOGC to CalmPercent (wire.TuneCollector). counts returns the work so far. Its
// result must not change often while there is little work. If off is true, Run sets GOGC to 100, which is Go's default,
// and waits for the end of ctx. If the environment sets GOGC, Run does not change GOGC. Run always returns nil.
func Run(ctx context.Context, counts func() Counts, off bool) error {
	if off {
		wire.TuneCollector(defaultPercent)
		<-ctx.Done()
		return nil
	}
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}}
	each := time.Duration(runtime.GOMAXPROCS(0)) * time.Second
	var state process
	percent := CalmPercent
	tick := time.NewTicker(time.Second / 4) // a storm lasts a few seconds
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
