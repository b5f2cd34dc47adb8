package place

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"navarch.io/navarch/store/obs"
)

// processMeter measures this process.
type processMeter struct {
	at      time.Time
	cpu     time.Duration
	waits   obs.RunQueue
	samples []metrics.Sample
}

// These are names of metrics in package runtime/metrics.
const (
	memoryTotal    = "/memory/classes/total:bytes"
	memoryReleased = "/memory/classes/heap/released:bytes"
)

// newProcessMeter returns a Meter of this process. The Meter measures CPU time (getrusage(2)), and the time that
// goroutines wait for a processor. It measures memory relative to Go's memory limit (GOMEMLIMIT). Only one goroutine
// may use the Meter.
func newProcessMeter() Meter {
	m := &processMeter{samples: []metrics.Sample{{Name: memoryTotal}, {Name: memoryReleased}}}
	m.Measure()
	return m
}

// Measure implements Meter. The first call measures the time since newProcessMeter.
func (m *processMeter) Measure() Measure {
	now := time.Now()
	cpu := obs.ProcessorTime()
	out := Measure{Period: now.Sub(m.at), CPU: cpu - m.cpu, Memory: m.Memory(), Latency: m.waits.Since(.99)}
	m.at, m.cpu = now, cpu
	return out
}

// Memory implements Meter. It returns the memory in use as a fraction of the limit, or 0 if there is no limit.
func (m *processMeter) Memory() float64 {
	limit := debug.SetMemoryLimit(-1)
	if limit <= 0 || limit == math.MaxInt64 {
		return 0
	}
	metrics.Read(m.samples)
	if m.samples[0].Value.Kind() != metrics.KindUint64 || m.samples[1].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return float64(m.samples[0].Value.Uint64()-m.samples[1].Value.Uint64()) / float64(limit)
}
