package loop

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// other returns how often another goroutine, which always wants the only processor, has had it.
func other(t *testing.T) (ran *atomic.Int64) {
	t.Helper()
	procs := runtime.GOMAXPROCS(1)
	ran, over := &atomic.Int64{}, &atomic.Bool{}
	go func() {
		for !over.Load() {
			ran.Add(1)
			runtime.Gosched()
		}
	}()
	t.Cleanup(func() {
		over.Store(true)
		runtime.GOMAXPROCS(procs)
	})
	return ran
}

func compute(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// A long computation with yields lets others run in between, in each of a few turns that are far shorter than the ten
// milliseconds after which Go would preempt it.
func TestYielderLetsOthersRun(t *testing.T) {
	ran, y := other(t), NewYielder()
	const turns = 4
	for range turns {
		compute(2 * yieldAfter)
		y.Yield()
	}
	if got := ran.Load(); got < turns {
		t.Errorf("another goroutine ran %d times in %d turns", got, turns)
	}
}

// A short computation keeps its processor, however long ago the last one was.
func TestYielderOfShortWork(t *testing.T) {
	ran, kept := other(t), 0
	const tries = 20 // in some of them another process may have the processor
	for range tries {
		compute(2 * yieldAfter)
		y, before := NewYielder(), ran.Load()
		if y.Yield(); ran.Load() == before {
			kept++
		}
	}
	if kept < tries/2 {
		t.Errorf("another goroutine went first in %d of %d pieces of work that take no time", tries-kept, tries)
	}
}
