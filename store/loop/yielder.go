package loop

import (
	"runtime"
	"time"
)

// yieldAfter is the computing time between two yields. It is short beside Go's own ten milliseconds, and long beside
// the cost of a yield.
const yieldAfter = time.Millisecond / 2

// Yielder lets other goroutines run during a long computation. Go itself preempts a goroutine only after ten
// milliseconds (forcePreemptNS in the runtime's proc.go). A change of endpoints passes about fifteen goroutines from
// the watch of etcd to the socket. If all processors are busy with parsing, normalising and planning, it could wait ten
// milliseconds at each of them. Yields do not change results. One goroutine at a time may use a Yielder.
type Yielder struct{ began time.Time } // the beginning, or the last yield

// NewYielder returns a Yielder for a computation that begins now. Computations below half a millisecond never yield.
func NewYielder() Yielder { return Yielder{time.Now()} }

// Yield is called between two pieces of the computation. It returns immediately unless the last yield is half a
// millisecond ago.
func (y *Yielder) Yield() {
	if time.Since(y.began) >= yieldAfter {
		runtime.Gosched()
		y.began = time.Now()
	}
}
