package obs

import (
	"runtime/metrics"
	"time"
)

// RunQueue measures how long runnable goroutines wait for a processor (runtime/metrics, /sched/latencies). Long waits
// mean that the machine is busy, with this or other processes. The zero value is ready for use by one goroutine.
type RunQueue struct {
	sample [1]metrics.Sample
	before []uint64
}

// Since returns a quantile of the waits since the previous call. The first call counts from the start of the process.
// The argument share is the quantile, above 0 and at most 1, such as .99. The result is the lower bound of the
// histogram bucket with this quantile. It is 0 if nothing waited, or if the metric is missing.
func (q *RunQueue) Since(share float64) time.Duration {
	q.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(q.sample[:])
	if q.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := q.sample[0].Value.Float64Histogram()
	return q.take(share, h.Counts, h.Buckets)
}

// take computes the result of Since from a histogram of all waits since the start of the process. The argument bounds
// has the bounds of the buckets in seconds.
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
