package place

import (
	"math"
	"runtime/debug"
	"time"

	"navarch.io/navarch/store/obs"
)

// processMeter measures this process.
type processMeter struct {
	at    time.Time
	cpu   time.Duration
	waits obs.RunQueue
}

// newProcessMeter returns a Meter of this process. The Meter measures CPU time (getrusage(2)), and the time that
// goroutines wait for a processor. It measures memory relative to Go's memory limit (GOMEMLIMIT). Only one goroutine
// may use the Meter.
func newProcessMeter() Meter {
	m := &processMeter{}
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
	return float64(obs.LimitedMemory()) / float64(limit)
}
