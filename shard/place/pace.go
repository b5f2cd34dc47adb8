package place

import (
	"cmp"
	"time"
)

// The costs of a join (the start of a new stream) are relative to a full join. In a full join, the proxy states no
// versions of resources. Without TLS, a full join needs 2 ms of CPU time and 1.8 MB of memory. With mTLS, it needs 5 ms
// of CPU time. With mTLS on new connections and 2,000 clusters, a refusal needs 450 KB of memory, and a join at
// CostHolds needs 540 KB. Both sizes include the memory of the client. The refusal needs 0.7 of the CPU time of the
// join at CostHolds. All numbers were measured.
const (
	CostFull    = 1.0  // join of a proxy that states no initial versions
	CostHolds   = 0.25 // join of a proxy that states initial versions: handshake, reading and comparison
	CostRefused = 0.2  // refused join: handshake and reading, without a comparison
)

// PaceConfig bounds the pace of joins. A zero field means its default, if it has one.
type PaceConfig struct {
	Cores     float64 // processors for this process; default 1
	Busy      float64 // fraction of Cores that joins and other work together may use; default 0.85
	Least     float64 // smallest rate on a busy machine with enough memory, in full joins per second; default 5*Cores
	Most      float64 // largest number of joins per second, applied by Admission; 0: no limit
	FirstCost float64 // CPU seconds of a full join, until this cost is measured; default 0.005
	Contained bool    // the memory limit comes from a container limit; no join is admitted from 1.03 of the limit on
}

// Measure holds the values measured in one period.
type Measure struct {
	Period time.Duration
	CPU    time.Duration // CPU time used by this process
	Cost   float64       // total cost of the admitted and refused joins (CostFull, CostHolds, CostRefused)
	Memory float64       // memory in use as a fraction of the limit; 0: there is no limit
	// Latency is the 99th percentile of the time that a runnable goroutine waited for a processor. A long wait means a
	// full machine, whichever process causes it.
	Latency time.Duration
}

// Pace turns measurements into a rate of joins. It reads no clock. Only one goroutine may call it. NewAdmission creates
// it.
type Pace struct {
	cfg     PaceConfig
	cost    float64 // CPU seconds of a full join
	other   float64 // CPU seconds per second of other work
	squeeze float64 // factor of the rate: 1, or less while the machine is full
	memory  float64 // last Measure.Memory
}

// Thresholds of Measure.Memory. Above tight, joins slow down. From tooTight on, only a trickle (a small constant rate)
// of joins is admitted. Without the trickle, proxies might never be admitted, because the memory may be garbage or used
// by other work. From overfull on, the memory cannot be garbage, since the garbage collector keeps garbage below the
// limit. In a container, no join is admitted from overfull on, because the kernel would kill the process. Served
// streams are not closed: each holds less memory than its reconnection would need.
const (
	tight    = 0.80
	tooTight = 0.92
	overfull = 1.03
)

// fullMachine is the highest Measure.Latency of a machine with free processors. Above fullMachine, the rate that free
// CPU time permits is halved (leastSqueeze).
const (
	fullMachine  = 50 * time.Millisecond
	leastSqueeze = 1. / 2
)

// fewJoins is the smallest Measure.Cost from which the CPU time of a join is estimated.
const fewJoins = 2 * CostFull

// leastPart is the fraction of the processors that joins may use even on a busy machine, since clients wait for
// admission.
const leastPart = .1

// newPace returns a Pace without measurements.
func newPace(cfg PaceConfig) *Pace {
	cfg.Cores = cmp.Or(cfg.Cores, 1)
	cfg.Busy = cmp.Or(cfg.Busy, .85)
	cfg.Least = cmp.Or(cfg.Least, 5*cfg.Cores)
	cfg.FirstCost = cmp.Or(cfg.FirstCost, .005)
	return &Pace{cfg: cfg, cost: cfg.FirstCost, squeeze: 1}
}

// Measured adds a measurement. A measurement without a positive Period is ignored.
func (p *Pace) Measured(m Measure) {
	if m.Period <= 0 {
		return
	}
	used, joins := m.CPU.Seconds()/m.Period.Seconds(), m.Cost/m.Period.Seconds()
	// The CPU time of a period is spent on joins and on other work. If enough joins came, at more than half of the
	// rate, the period measures the cost of a join. Pushes in the same period raise the measured cost, which only
	// lowers the rate. With fewer joins, the period measures the other work.
	if m.Cost >= fewJoins && joins > p.Rate()/2 {
		sample := max(used-p.other, 0) / joins
		p.cost += .3 * (min(max(sample, p.cfg.FirstCost/50), p.cfg.FirstCost*20) - p.cost)
	} else {
		p.other += .3 * (max(used-joins*p.cost, 0) - p.other)
	}
	p.Remember(m.Memory)
	if m.Latency > fullMachine {
		p.squeeze = max(p.squeeze/2, leastSqueeze)
	} else {
		p.squeeze = min(p.squeeze*1.25, 1)
	}
}

// Remember sets the memory in use, as a fraction of the limit (Measure.Memory).
func (p *Pace) Remember(memory float64) { p.memory = memory }

// Rate returns the total cost of the joins to admit per second; a full join costs CostFull. The rate is 0 only while
// Overfull is true. PaceConfig.Most does not limit it.
func (p *Pace) Rate() float64 {
	if p.Overfull() {
		return 0
	}
	trickle := p.cfg.Least * CostFull / 5
	if p.Full() {
		return trickle
	}
	headroom := max(p.cfg.Busy*p.cfg.Cores-p.other, 0)
	rate := max(headroom*p.squeeze/p.cost, leastPart*p.cfg.Cores/p.cost, p.cfg.Least*CostFull)
	if p.memory > tight {
		rate = max(rate*(tooTight-p.memory)/(tooTight-tight), trickle)
	}
	return rate
}

// Full reports whether memory is so short that at most a trickle of joins is admitted.
func (p *Pace) Full() bool { return p.memory >= tooTight }

// Overfull reports whether memory is so short that no joins are admitted. It is always false unless
// PaceConfig.Contained is true.
func (p *Pace) Overfull() bool { return p.cfg.Contained && p.memory >= overfull }

// Cost returns the measured CPU time of a full join. Before any measurement it returns PaceConfig.FirstCost.
func (p *Pace) Cost() time.Duration { return time.Duration(p.cost * float64(time.Second)) }
