package place

import (
	"cmp"
	"time"
)

// Costs of a join, relative to that of a proxy that holds nothing (2 ms of CPU for 1.8 MB in plain text, 5 ms with
// mTLS; measured per process). A refusal costs a fraction of a join that holds everything: with mTLS on new connections
// and 2,000 clusters, 0.8 of its memory (450 KB of 540, client included) and 0.7 of its processor time.
const (
	CostFull    = 1.0
	CostHolds   = 0.25 // it presented initial versions: handshake, reading and comparing them; measured with mTLS
	CostRefused = 0.2  // it is refused: handshake and reading the request, without a comparison
)

// PaceConfig bounds the pace of joins. A zero field means its default.
type PaceConfig struct {
	Cores     float64 // of this process; 1
	Busy      float64 // fraction of the cores that joins may fill together with other work; 0.85
	Least     float64 // smallest rate of joins per second on a busy machine, if memory permits; 5 for each core
	Most      float64 // largest rate of joins per second; 0: no limit. PILOT_MAX_REQUESTS_PER_SECOND, if set
	FirstCost float64 // CPU seconds of a full join before any measurement; 0.005
	Contained bool    // the memory limit is a container's less some headroom: the kernel kills the process far beyond it
}

// Measure is the measurement of a period.
type Measure struct {
	Period time.Duration
	CPU    time.Duration // used by this process
	Cost   float64       // of joins admitted or refused (CostFull, CostHolds, CostRefused)
	Memory float64       // in use, as a fraction of the limit; 0: there is no limit
	// Latency is the 99th percentile of the time that a runnable goroutine waited for a processor. A long wait means a
	// full machine, whatever loads it.
	Latency time.Duration
}

// Pace turns measurements into a rate. It has no clock; one goroutine calls it.
type Pace struct {
	cfg     PaceConfig
	cost    float64 // CPU seconds of a full join
	other   float64 // CPU seconds per second of other work
	squeeze float64 // 1; less while the machine is full
	memory  float64
}

// Memory limits, as fractions. Joins slow down from tight to a trickle at tooTight: memory in use there may be garbage
// or other work's, and a proxy that is never admitted is worse off than one that waits. Above overfull the memory is
// live, since the collector keeps garbage below the limit; a container then admits none. Served streams stay: a stream
// holds a sixth of the cost of coming back (450 KB, refused or not).
const (
	tight    = 0.80
	tooTight = 0.92
	overfull = 1.03
)

// fullMachine is the latency above which the machine is full. It halves the joins, down to leastSqueeze; beyond that
// the measured processor time decides.
const (
	fullMachine  = 50 * time.Millisecond
	leastSqueeze = 1. / 2
)

// fewJoins is the cost below which a period has no significance for joins.
const fewJoins = 2 * CostFull

// leastPart is the fraction of the processors that joins receive on a busy machine, since clients wait for them.
const leastPart = .1

// newPace returns a Pace without measurements.
func newPace(cfg PaceConfig) *Pace {
	cfg.Cores = cmp.Or(cfg.Cores, 1)
	cfg.Busy = cmp.Or(cfg.Busy, .85)
	cfg.Least = cmp.Or(cfg.Least, 5*cfg.Cores)
	cfg.FirstCost = cmp.Or(cfg.FirstCost, .005)
	return &Pace{cfg: cfg, cost: cfg.FirstCost, squeeze: 1}
}

// Measured adds a measurement.
func (p *Pace) Measured(m Measure) {
	if m.Period <= 0 {
		return
	}
	used, joins := m.CPU.Seconds()/m.Period.Seconds(), m.Cost/m.Period.Seconds()
	// A period's CPU time is divided between joins and other work. If joins came at full rate, the period measures the
	// cost of a join (too high if there were pushes, which is the safe side). Otherwise it measures the other work.
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

// Remember sets the memory in use, as in a Measure.
func (p *Pace) Remember(memory float64) { p.memory = memory }

// Rate returns the cost per second that may be admitted.
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

// Full reports that joins have slowed down to a trickle because memory is short.
func (p *Pace) Full() bool { return p.memory >= tooTight }

// Overfull reports that memory would soon exceed the container's limit.
func (p *Pace) Overfull() bool { return p.cfg.Contained && p.memory >= overfull }

// Cost returns the measured CPU time of a full join.
func (p *Pace) Cost() time.Duration { return time.Duration(p.cost * float64(time.Second)) }
