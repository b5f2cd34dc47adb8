package place

import (
	"cmp"
	"time"
)

// Costs of a join, in joins of a proxy that holds nothing (2 ms of CPU for 1.8 MB in plain text, 5 with mTLS; to be measured).
// A refusal is a part of what one costs that holds everything: counted with mTLS on new connections and 2,000 clusters, it
// takes 0.8 of the memory (450 KB of 540, client included) and 0.7 of the processor time.
const (
	CostFull    = 1.0
	CostHolds   = 0.25 // it presented initial versions: the handshake, reading them, and a comparison; measured, with mTLS
	CostRefused = 0.2  // it is not let in: the handshake, and reading what it asks for, but no comparison
)

// PaceConfig bounds the pace of joins. The zero value of a field is its default.
type PaceConfig struct {
	Cores     float64 // that this process may use; 1
	Busy      float64 // of them, a part that joins may fill up together with everything else; 0.85
	Least     float64 // joins a second that are let in however busy it is, where memory allows; 5 for each core
	Most      float64 // joins a second at most; 0: no limit. PILOT_MAX_REQUESTS_PER_SECOND, where it is set
	FirstCost float64 // CPU seconds of a full join, before any is measured; 0.005
	Contained bool    // the memory limit is a container's, less some headroom: the kernel kills who goes much beyond it
}

// Measure is what was measured over a period.
type Measure struct {
	Period time.Duration
	CPU    time.Duration // used by this process
	Cost   float64       // of the joins that were let in, or refused (CostFull, CostHolds, CostRefused)
	Memory float64       // in use, as a part of the limit; 0: there is no limit
	// Latency is how long a goroutine that could run had to wait for a processor, of the slowest hundredth; where it is
	// long, the machine is full, whoever fills it.
	Latency time.Duration
}

// Pace turns measurements into a rate. It has no clock; one goroutine calls it.
type Pace struct {
	cfg     PaceConfig
	cost    float64 // CPU seconds of a full join
	other   float64 // CPU seconds a second that are not joins'
	squeeze float64 // 1; less while the machine is full
	memory  float64
}

// Memory limits: joins slow down from tight to a trickle at tooTight: what is in use then may be garbage, or somebody else's,
// and a proxy that is never let in is worse off than one that waits. Above overfull it is not garbage: the collector keeps that
// below the limit, and what lives has grown into the headroom. In a container nobody is let in then. Who is served stays: a
// stream holds a sixth of what it costs to come back (450 KB, refused or not).
const (
	tight    = 0.80
	tooTight = 0.92
	overfull = 1.03
)

// fullMachine is the latency from which the machine is full, whoever fills it: joins are halved then, down to
// leastSqueeze: the rest is for the measured processor time to say.
const (
	fullMachine  = 50 * time.Millisecond
	leastSqueeze = 1. / 2
)

// fewJoins is the cost below which a period says nothing about joins.
const fewJoins = 2 * CostFull

// leastPart is the part of the processors that joins get however busy they are: somebody waits for them.
const leastPart = .1

// newPace makes one that has measured nothing.
func newPace(cfg PaceConfig) *Pace {
	cfg.Cores = cmp.Or(cfg.Cores, 1)
	cfg.Busy = cmp.Or(cfg.Busy, .85)
	cfg.Least = cmp.Or(cfg.Least, 5*cfg.Cores)
	cfg.FirstCost = cmp.Or(cfg.FirstCost, .005)
	return &Pace{cfg: cfg, cost: cfg.FirstCost, squeeze: 1}
}

// Measured takes a measurement in.
func (p *Pace) Measured(m Measure) {
	if m.Period <= 0 {
		return
	}
	used, joins := m.CPU.Seconds()/m.Period.Seconds(), m.Cost/m.Period.Seconds()
	// What a period used is divided between joins and the rest: where joins came as fast as they may it says what a join
	// costs (and errs to the safe side: a push at that time counts as theirs), else it says what the rest does.
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

// Remember takes in how much memory is in use now, as in a Measure.
func (p *Pace) Remember(memory float64) { p.memory = memory }

// Rate is how much cost a second may be let in.
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

// Full says that joins have slowed down to a trickle, since memory is short.
func (p *Pace) Full() bool { return p.memory >= tooTight }

// Overfull says that memory would soon be more than the container has.
func (p *Pace) Overfull() bool { return p.cfg.Contained && p.memory >= overfull }

// Cost is the CPU time of a full join, as measured.
func (p *Pace) Cost() time.Duration { return time.Duration(p.cost * float64(time.Second)) }
