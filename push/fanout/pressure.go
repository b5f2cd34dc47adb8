package fanout

import (
	"runtime/metrics"
	"time"
)

// pressEvery is how often the run queue is looked at, while its length matters.
const pressEvery = 25 * time.Millisecond

// pressure reads how long goroutines wait until they run (runtime/metrics).
type pressure struct {
	sample [1]metrics.Sample
	before []uint64
}

// since is what nine in ten goroutines that became runnable since the last call waited less than; 0: none did, or it is not
// known.
func (p *pressure) since() time.Duration {
	p.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(p.sample[:])
	if p.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := p.sample[0].Value.Float64Histogram()
	return p.take(h.Counts, h.Buckets)
}

// take is since, of a histogram that only grows; the bounds of its buckets are in seconds.
func (p *pressure) take(counts []uint64, bounds []float64) (wait time.Duration) {
	if len(p.before) != len(counts) {
		p.before = make([]uint64, len(counts))
	}
	total, below := uint64(0), uint64(0)
	for i, n := range counts {
		total += n - p.before[i]
	}
	for i, n := range counts {
		if below += n - p.before[i]; n != p.before[i] && wait == 0 && below*10 >= total*9 {
			wait = max(1, time.Duration(bounds[i]*float64(time.Second))) // the lower bound: the last one has no other
		}
	}
	copy(p.before, counts)
	return wait
}
