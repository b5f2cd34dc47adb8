package loop

import (
	"runtime"
	"time"
)

// yieldAfter is how long a goroutine computes between two yields: short beside Go's own ten milliseconds, long beside what a yield costs.
const yieldAfter = time.Millisecond / 2

// Yielder lets the other goroutines of the process go first, now and then, where one computes for long. Go takes the processor from a
// goroutine that does not give it up only after ten milliseconds (forcePreemptNS in the runtime's proc.go). A change of endpoints passes
// some fifteen goroutines from the watch of etcd to the socket, and would wait for so long at each of them on a machine whose processors
// are all busy with parsing, normalising and planning. What is computed does not depend on it. It belongs to one goroutine at a time.
type Yielder struct{ began time.Time } // when it began to compute, or yielded last

// NewYielder is for work that begins now: what takes less than half a millisecond is done without a yield.
func NewYielder() Yielder { return Yielder{time.Now()} }

// Yield is called between two pieces of the work; it returns at once where little time has passed since others last went first.
func (y *Yielder) Yield() {
	if time.Since(y.began) >= yieldAfter {
		runtime.Gosched()
		y.began = time.Now()
	}
}
