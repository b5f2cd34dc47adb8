package place

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// processMeter measures this process.
type processMeter struct {
	at      time.Time
	cpu     time.Duration
	buckets []uint64
	samples []metrics.Sample
}

// Names of runtime/metrics.
const (
	memoryTotal    = "/memory/classes/total:bytes"
	memoryReleased = "/memory/classes/heap/released:bytes"
	latencies      = "/sched/latencies:seconds"
)

// NewProcessMeter measures this process: CPU by getrusage(2), memory against GOMEMLIMIT, and how long goroutines wait for a
// processor. One goroutine may use it.
func NewProcessMeter() Meter {
	m := &processMeter{samples: []metrics.Sample{{Name: memoryTotal}, {Name: memoryReleased}, {Name: latencies}}}
	m.Measure()
	return m
}

// Measure measures since the last call.
func (m *processMeter) Measure() Measure {
	now := time.Now()
	var usage unix.Rusage
	cpu := m.cpu
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	metrics.Read(m.samples)
	out := Measure{Period: now.Sub(m.at), CPU: cpu - m.cpu, Memory: m.memory(), Latency: m.latency()}
	m.at, m.cpu = now, cpu
	return out
}

func (m *processMeter) memory() float64 {
	limit := debug.SetMemoryLimit(-1)
	if limit <= 0 || limit == math.MaxInt64 || m.samples[0].Value.Kind() != metrics.KindUint64 || m.samples[1].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return float64(m.samples[0].Value.Uint64()-m.samples[1].Value.Uint64()) / float64(limit)
}

// latency is the 99th percentile of what was added to the histogram since the last call.
func (m *processMeter) latency() time.Duration {
	if m.samples[2].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := m.samples[2].Value.Float64Histogram()
	before := m.buckets
	if len(before) != len(h.Counts) {
		before = make([]uint64, len(h.Counts))
	}
	total := uint64(0)
	for i, n := range h.Counts {
		total += n - before[i]
	}
	slowest, above := time.Duration(0), uint64(0)
	for i := len(h.Counts) - 1; i >= 0 && total > 0; i-- {
		if above += h.Counts[i] - before[i]; above*100 > total {
			if low := h.Buckets[i]; low > 0 {
				slowest = time.Duration(low * float64(time.Second))
			}
			break
		}
	}
	m.buckets = append(m.buckets[:0], h.Counts...)
	return slowest
}
