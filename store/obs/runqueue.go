package obs

import (
	"runtime/metrics"
	"time"
)

// RunQueue reads how long goroutines that could run wait for a processor (runtime/metrics, /sched/latencies). Where that is
// long, the machine is full, whoever fills it. The zero value is ready; one goroutine may use it.
type RunQueue struct {
	sample [1]metrics.Sample
	before []uint64
}

// Since is what a share of the goroutines that became runnable since the last call waited less than, .99: all but the slowest
// hundredth. It is the lower bound of the histogram's bucket; 0: none waited, or it is not known.
func (q *RunQueue) Since(share float64) time.Duration {
	q.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(q.sample[:])
	if q.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := q.sample[0].Value.Float64Histogram()
	return q.take(share, h.Counts, h.Buckets)
}

// take is Since, of a histogram that only grows; the bounds of its buckets are in seconds.
func (q *RunQueue) take(share float64, counts []uint64, bounds []float64) (wait time.Duration) {
	if len(q.before) != len(counts) {
		q.before = make([]uint64, len(counts))
	}
	total, below := uint64(0), uint64(0)
	for i, n := range counts {
		total += n - q.before[i]
	}
	for i, n := range counts {
		below += n - q.before[i]
		if total > 0 && float64(below) >= share*float64(total) {
			wait = time.Duration(max(0, bounds[i]) * float64(time.Second))
			break
		}
	}
	copy(q.before, counts)
	return wait
}
