package loop

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// yieldAfter is the time between two yields. It is short beside the ten milliseconds of Go's scheduler, and long
	// beside the cost of a yield.
	yieldAfter = time.Millisecond / 2
	// crowdedAfter is the shortest duration of a yield after which the processors count as crowded.
	crowdedAfter = 4 * yieldAfter
	// crowdedFor is the time for which the processors count as crowded, as a multiple of the duration of that yield.
	// The next yield then measures again, so measuring costs a twentieth of the time at most.
	crowdedFor = 20
	// longestRun bounds the time between two yields. Go would preempt the computation soon after it.
	longestRun = 8 * time.Millisecond
)

// crowdedUntil is the time in nanoseconds since start until which the processors count as crowded. All computations
// of the process share this time, because a single one is often too short to measure it.
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
	patient bool          // also in a crowd, the Yielder waits for the whole queue
	waited  time.Duration // duration of the last yield
}

// NewYielder returns a Yielder for a computation that begins now and that all proxies wait for. runtime.Gosched appends
// a goroutine to the global queue, of which a processor takes one goroutine after 61 of its own. With hundreds of busy
// connections one yield may then last a tenth of a second. In such a crowd Yield sleeps for half a millisecond instead.
// Afterwards the computation runs as long as it has waited, from half a millisecond to 8 ms, before it yields again.
func NewYielder() Yielder { return Yielder{began: time.Now()} }

// NewPatientYielder returns a Yielder for a computation on behalf of one client, such as an admission review. In a
// crowd it waits until all goroutines before it have run.
func NewPatientYielder() Yielder { return Yielder{began: time.Now(), patient: true} }

// Yield yields to other goroutines if half a millisecond has passed since the beginning or the last yield. A
// computation calls it between two of its pieces.
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
