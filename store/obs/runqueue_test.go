package obs

import (
	"math"
	"testing"
	"time"
)

// Since returns the wait of nine in ten since the last call.
func TestRunQueue(t *testing.T) {
	bounds := []float64{math.Inf(-1), 0, .001, .01, .1, math.Inf(1)}
	var q RunQueue
	for i, c := range []struct {
		counts []uint64
		want   time.Duration
	}{
		{[]uint64{0, 0, 0, 0, 0}, 0},
		{[]uint64{0, 8, 2, 0, 0}, time.Millisecond},
		{[]uint64{0, 8, 2, 0, 0}, 0},
		{[]uint64{0, 17, 2, 1, 0}, 0},
		{[]uint64{0, 17, 2, 2, 0}, 10 * time.Millisecond},
		{[]uint64{0, 17, 2, 2, 5}, 100 * time.Millisecond},
		{[]uint64{3, 17, 2, 2, 5}, 0},
	} {
		if got := q.take(.9, c.counts, bounds); got != c.want {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
}

// Goroutines that wait behind others are seen.
func TestRunQueueIsRead(t *testing.T) {
	var q RunQueue
	q.Since(1)
	waited := time.Duration(0)
	for end := time.Now().Add(time.Minute); waited == 0 && time.Now().Before(end); waited = q.Since(1) {
		done := make(chan struct{})
		for range 100 {
			go func() { done <- struct{}{} }()
		}
		for range 100 {
			<-done
		}
	}
	if waited <= 0 {
		t.Error("a hundred goroutines that waited are not seen")
	}
}
