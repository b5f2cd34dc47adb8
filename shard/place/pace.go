package place

import (
	"cmp"
	"time"
)

// Costs of a join, relative to a full join, in which the proxy states no held resources. A full join needs 2 ms of CPU
// and 1.8 MB in plain text, 5 ms with mTLS (measured per process). With mTLS on new connections and 2,000 clusters, a
// refusal needs 450 KB, and a join at CostHolds 540 KB, client included. The refusal then needs 0.7 of the CPU time of
// that join.
const (
	CostFull    = 1.0  // join of a proxy that states no held resources
	CostHolds   = 0.25 // join of a proxy that states initial versions: handshake, reading and comparison; measured with mTLS
	CostRefused = 0.2  // refusal: handshake and reading the request, without a comparison
)

// PaceConfig bounds the pace of joins. A zero field means its default.
type PaceConfig struct {
	Cores     float64 // of this process; 0: 1
	Busy      float64 // fraction of the cores that joins may fill together with other work; 0: 0.85
	Least     float64 // smallest rate on a busy machine, in full joins per second, if memory permits; 0: 5 times Cores
	Most      float64 // largest number of joins per second, applied by Admission; 0: no limit
	FirstCost float64 // CPU seconds of a full join before any measurement; 0: 0.005
	Contained bool    // the memory limit derives from a container's: from 1.03 of the limit on, no joins are admitted
}

// Measure is the measurement of a period.
type Measure struct {
	Period time.Duration
	CPU    time.Duration // used by this process
	Cost   float64       // sum over admitted and refused joins (CostFull, CostHolds, CostRefused)
	Memory float64       // memory in use as a fraction of the limit; 0: there is no limit
	// Latency is the 99th percentile of the time that a runnable goroutine waited for a processor. A long wait means a
	// full machine, even if another process loads it.
	Latency time.Duration
}

// Pace turns measurements into a rate of joins. It has no clock. One goroutine calls it. NewAdmission creates it.
type Pace struct {
	cfg     PaceConfig
	cost    float64 // CPU seconds of a full join
	other   float64 // CPU seconds per second of other work
	squeeze float64 // factor of the rate: 1, less while the machine is full
	memory  float64
}

// Thresholds of Measure.Memory. Above tight, joins slow down. From tooTight on, only a trickle of joins is admitted.
// The trickle continues, because the memory may be garbage or used by other work, and a proxy that is never admitted is
// worse off than one that waits. From overfull on the memory is live, since the collector keeps garbage below the
// limit. Then a container admits no joins, because the kernel would kill the process. Served streams are not closed: a
// stream holds a sixth of the 450 KB that its reconnection costs, refused or not.
const (
	tight    = 0.80
	tooTight = 0.92
	overfull = 1.03
)

// fullMachine is the highest Measure.Latency of a machine with free processors. Above it, the rate by headroom is
// halved (leastSqueeze). The measured CPU time limits that rate further.
const (
	fullMachine  = 50 * time.Millisecond
	leastSqueeze = 1. / 2
)

// fewJoins is the smallest Measure.Cost for estimating the cost of a join.
const fewJoins = 2 * CostFull

// leastPart is the smallest fraction of the processors for joins on a busy machine, since clients wait for the joins.
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
	// rate, the period measures the cost of a join. Pushes at that time raise the measured cost, which is the safe
	// direction. Otherwise the period measures the other work.
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

// Remember sets the memory in use, a fraction as in Measure.Memory.
func (p *Pace) Remember(memory float64) { p.memory = memory }

// Rate returns the cost of joins to admit per second; a full join costs CostFull. It is 0 only while Overfull is true.
// Rate does not apply PaceConfig.Most.
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
