package loop

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// yieldAfter is the time between two yields. It is short compared with the ten milliseconds of Go's scheduler, and
	// long compared with the cost of a yield.
	yieldAfter = time.Millisecond / 2
	// crowdedAfter is the shortest duration of a yield after which the processors count as crowded.
	crowdedAfter = 4 * yieldAfter
	// crowdedFor times the duration of a long yield is the time for which the processors count as crowded. The next
	// yield after that time measures again. So measuring costs at most a twentieth of the time.
	crowdedFor = 20
	// longestRun bounds the time between two yields. Go would preempt the computation soon after it.
	longestRun = 8 * time.Millisecond
)

// crowdedUntil is the time in nanoseconds since start until which the processors count as crowded. All computations of
// the process share this time, because a single computation is often too short to measure it.
var (
	crowdedUntil atomic.Int64
	start        = time.Now()
)

// Yielder lets other goroutines run during a long computation. Go itself preempts a goroutine only after ten
// milliseconds (forcePreemptNS in the runtime's proc.go). A change of endpoints passes about fifteen goroutines from
// the watch of etcd to the socket. If all processors are busy with parsing, normalising and planning, the change could
// wait ten milliseconds at each goroutine. Yields do not change results. One goroutine at a time may use a Yielder.
type Yielder struct {
	began   time.Time     // the beginning, or the last yield
	patient bool          // the Yielder waits for the whole queue even if the processors are crowded
	waited  time.Duration // duration of the last yield
}

// NewYielder returns a Yielder for a computation that begins now and that all proxies wait for. runtime.Gosched appends
// a goroutine to the global queue. A processor takes one goroutine from this queue after 61 of its own. With hundreds
// of busy connections one yield may then last a tenth of a second. While the processors are so crowded, Yield sleeps
// for half a millisecond instead. Afterwards the computation runs as long as it has waited, from half a millisecond to
// 8 ms, before it yields again.
func NewYielder() Yielder { return Yielder{began: time.Now()} }

// NewPatientYielder returns a Yielder for a computation on behalf of one client, such as an admission review. Even if
// the processors are crowded, it waits until all goroutines before it have run.
func NewPatientYielder() Yielder { return Yielder{began: time.Now(), patient: true} }

// Yield yields to other goroutines if enough time has passed since the beginning or the last yield. Half a millisecond
// is enough, except after a longer yield. After a longer yield the computation first runs for the duration of that
// yield, at most 8 ms, unless the Yielder is patient. A computation calls Yield between two of its pieces.
func (y *Yielder) Yield() {
	now := time.Now()
	if now.Sub(y.began) < min(max(yieldAfter, y.waited), longestRun) {
		return
	}
	asleep := !y.patient && int64(now.Sub(start)) < crowdedUntil.Load()
	if asleep {
		time.Sleep(yieldAfter)
	} else {
		runtime.Gosched()
	}
	y.began = time.Now()
	wait := y.began.Sub(now)
	if !y.patient {
		y.waited = wait
	}
	if !asleep && wait >= crowdedAfter {
		crowdedUntil.Store(int64(y.began.Sub(start) + crowdedFor*wait))
	}
}
