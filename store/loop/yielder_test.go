package loop

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Who computes for long, and yields, lets others run in between: on one processor, in each of a few turns that are far shorter than the ten
// milliseconds after which Go would take the processor away.
func TestYielderLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ran, done atomic.Int64
	go func() {
		for done.Load() == 0 {
			ran.Add(1)
			runtime.Gosched()
		}
	}()
	defer done.Store(1)
	var y Yielder
	const turns = 4
	for range turns {
		for began := time.Now(); time.Since(began) < 2*yieldAfter; {
		}
		y.Yield()
	}
	if got := ran.Load(); got < turns {
		t.Errorf("another goroutine ran %d times in %d turns", got, turns)
	}
}
