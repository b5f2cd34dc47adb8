package fanout

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func runLoop(t *testing.T, b Budget, workers int) *Loop {
	l := New(b, workers)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = l.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return l
}

// Whatever is marked last is seen by a send that begins later: nothing is lost between a turn and the next.
func TestLoopLosesNothing(t *testing.T) {
	l := runLoop(t, Budget{Streams: 3}, 2)
	const streams, edits = 50, 200
	var newest [streams]atomic.Int64
	var sent [streams]atomic.Int64
	var busy [streams]atomic.Bool
	handles := make([]*Stream, streams)
	for i := range streams {
		handles[i] = l.Join("ns", false, func(bool) int {
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

// However often streams are marked while nobody takes it out, the inbox holds each once.
func TestInboxIsBounded(t *testing.T) {
	l := New(Budget{}, 1)
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
