package loop

import (
	"runtime"
	"time"
)

// yieldAfter is the time between two yields. It is short beside the ten milliseconds of Go's scheduler, and long beside
// the cost of a yield.
const yieldAfter = time.Millisecond / 2

// Yielder lets other goroutines run during a long computation. Go itself preempts a goroutine only after ten
// milliseconds (forcePreemptNS in the runtime's proc.go). A change of endpoints passes about fifteen goroutines from
// the watch of etcd to the socket. If all processors are busy with parsing, normalising and planning, the change could
// wait ten milliseconds at each goroutine. Yields do not change results. One goroutine at a time may use a Yielder.
type Yielder struct{ began time.Time } // the beginning, or the last yield

// NewYielder returns a Yielder for a computation that begins now.
func NewYielder() Yielder { return Yielder{time.Now()} }

// Yield yields to other goroutines if half a millisecond has passed since the beginning or the last yield. A
// computation calls it between two of its pieces.
func (y *Yielder) Yield() {
	if time.Since(y.began) >= yieldAfter {
		runtime.Gosched()
		y.began = time.Now()
	}
}
