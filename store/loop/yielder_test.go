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

// A long computation with yields lets others run in between, in most of a few turns that are far shorter than the ten
// milliseconds after which Go would preempt it. In the others another process may have had the processor.
func TestYielderLetsOthersRun(t *testing.T) {
	ran, y := other(t), NewYielder()
	const turns = 20
	with := 0
	for range turns {
		compute(2 * yieldAfter)
		before := ran.Load()
		if y.Yield(); ran.Load() > before {
			with++
		}
	}
	if with < turns/2 {
		t.Errorf("another goroutine ran in %d of %d turns", with, turns)
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

// In a crowd of busy goroutines a computation that all proxies wait for does not wait for the whole crowd at each
// yield. One on behalf of a client does.
func TestYielderInACrowd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const crowd, turns = 200, 10
	ran, over := &atomic.Int64{}, &atomic.Bool{}
	defer over.Store(true)
	for range crowd {
		go func() {
			for !over.Load() {
				compute(yieldAfter / 5)
				ran.Add(1)
				runtime.Gosched()
			}
		}()
	}
	others := func(y Yielder) int64 {
		y.began = y.began.Add(-longestRun)
		y.Yield() // it lasts as long as all of the crowd, and is remembered
		before := ran.Load()
		for range turns {
			y.began = y.began.Add(-longestRun)
			y.Yield()
		}
		return (ran.Load() - before) / turns
	}
	if n := others(NewYielder()); n > crowd*9/10 { // on a busy machine a sleep lasts longer, but not as a turn of all
		t.Errorf("%d goroutines of %d run at each yield", n, crowd)
	}
	if n := others(NewPatientYielder()); n < crowd/2 { // the rest may be on its way beside other processes
		t.Errorf("%d goroutines of %d run at each yield of a patient computation", n, crowd)
	}
}
