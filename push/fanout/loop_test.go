package fanout

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/watchdog"
)

func runLoop(t *testing.T, b Budget, workers int) *Loop {
	l := New(b, workers, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = l.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return l
}

// A send that begins after a mark sees the marked state: no mark is lost between two turns.
func TestLoopLosesNothing(t *testing.T) {
	l := runLoop(t, Budget{Streams: 3}, 2)
	const streams, edits = 50, 200
	var newest [streams]atomic.Int64
	var sent [streams]atomic.Int64
	var busy [streams]atomic.Bool
	handles := make([]*Stream, streams)
	for i := range streams {
		handles[i] = l.Join("ns", false, func(bool, int64) int {
			if busy[i].Swap(true) {
				t.Error("two workers send to one stream")
			}
			sent[i].Store(newest[i].Load())
			busy[i].Store(false)
			return 1
		})
	}
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for range edits {
				for i := w; i < streams; i += 2 {
					newest[i].Add(1)
					handles[i].Mark(Lane(i % 2))
					handles[i].Acked(1)
				}
			}
		})
	}
	writers.Wait()
	deadline := time.Now().Add(time.Minute)
	for i := range streams {
		for sent[i].Load() != edits {
			if time.Now().After(deadline) {
				t.Fatalf("stream %d was sent %d, newest is %d", i, sent[i].Load(), newest[i].Load())
			}
			runtime.Gosched()
		}
	}
	if n := len(l.take()); n > streams {
		t.Errorf("%d entries in the inbox for %d streams", n, streams)
	}
}

// The inbox contains a stream at most once, however often the stream is marked before the inbox is emptied.
func TestInboxIsBounded(t *testing.T) {
	l := New(Budget{}, 1, nil)
	a, b := l.Join("ns", false, nil), l.Join("ns", false, nil)
	for range 1000 {
		a.Mark(Config)
		b.Mark(Endpoints)
		b.Acked(1)
	}
	if n := len(l.take()); n != 2 {
		t.Errorf("%d entries for 2 streams", n)
	}
}

// While configuration and endpoints are both waiting, the run queue's delay is read once in each pressEvery; otherwise
// it is not read.
func TestRunQueueIsReadOnce(t *testing.T) {
	watchdog.Caught(t) // the turn of the stream lasts as long as the test
	synctest.Test(t, func(t *testing.T) {
		l := New(Budget{}, 1, nil)
		var reads atomic.Int64
		l.waited = func() time.Duration { reads.Add(1); return 0 }
		ctx, cancel := context.WithCancel(t.Context())
		done, turn := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); _ = l.Run(ctx) }()
		first := l.Join("n", false, func(bool, int64) int { <-turn; return 0 })
		other := l.Join("n", false, func(bool, int64) int { return 0 })
		first.Mark(Config)
		synctest.Wait()
		if n := reads.Load(); n != 0 {
			t.Errorf("read %d times while no endpoints change", n)
		}
		other.Mark(Endpoints)
		time.Sleep(time.Second + pressEvery/2)
		synctest.Wait()
		if n, want := reads.Load(), int64(1+time.Second/pressEvery); n != want {
			t.Errorf("read %d times in a second, want %d", n, want)
		}
		time.Sleep(longCalm)
		synctest.Wait()
		before := reads.Load()
		time.Sleep(longCalm)
		synctest.Wait()
		if n := reads.Load() - before; n != 0 {
			t.Errorf("read %d times after endpoints had been calm for long", n)
		}
		close(turn)
		cancel()
		<-done
	})
}

// The watchdog reports a turn that blocks, and with it a worker.
func TestBlockedTurnIsFound(t *testing.T) {
	blocked := watchdog.Caught(t)
	synctest.Test(t, func(t *testing.T) {
		l := runLoop(t, Budget{}, 1)
		for range 2 {
			l.Join("n", false, func(bool, int64) int { time.Sleep(watchdog.Limit + time.Second); return 0 }).Mark(Config)
		}
		time.Sleep(time.Minute)
	})
	if got := blocked(); len(got) != 2 || got[0] != "fan-out: a stream's turn" {
		t.Errorf("%q", got)
	}
}
