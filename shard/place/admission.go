package place

import (
	"cmp"
	"context"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// AdmissionConfig is how new streams are let in. The zero value of a field is its default.
type AdmissionConfig struct {
	Pace    PaceConfig
	Longest time.Duration // that a join may wait; 2 minutes. It costs less than who is served; who is refused comes back, for more
	Queue   int           // joins that wait at most; 20,000
	Every   time.Duration // between two measurements; 1 s
	Meter   Meter         // nil: this process
	Waited  func(time.Duration, error)
	Off     bool // everybody is let in at once: to measure what the loop is worth
}

// Meter measures this process.
type Meter interface {
	Measure() Measure // since it was asked before: everything but Cost
	Memory() float64  // Measure.Memory alone, now
}

// memoryEvery is how often memory is looked at: joins that come at once fill a small container within a second.
const memoryEvery = 50 * time.Millisecond

// Admission lets new streams in at a pace set by the headroom that is measured: so many joins that the processors are
// busy, not more; fewer where memory is short. It makes joins wait rather than refuse them. Run must be running.
type Admission struct {
	cfg  AdmissionConfig
	pace *Pace // Run's
	wake chan struct{}

	mu    sync.Mutex // a leaf: guards what follows
	gate  gate
	cost  float64 // let in or refused since the last measurement
	state AdmissionState
}

// AdmissionState is what is to be shown.
type AdmissionState struct {
	Rate     float64       // full joins a second
	JoinCost time.Duration // CPU time of one, as measured
	Waiting  int           // joins that wait
	Delay    time.Duration // how long one that comes now would wait
	Admitted uint64
	Refused  uint64
}

// NewAdmission makes one.
func NewAdmission(cfg AdmissionConfig) *Admission {
	cfg.Longest = cmp.Or(cfg.Longest, 2*time.Minute)
	cfg.Queue = cmp.Or(cfg.Queue, 20_000)
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	if cfg.Meter == nil {
		cfg.Meter = newProcessMeter()
	}
	if cfg.Waited == nil {
		cfg.Waited = func(time.Duration, error) {}
	}
	a := &Admission{cfg: cfg, pace: newPace(cfg.Pace), wake: make(chan struct{}, 1)}
	a.gate = gate{rate: a.pace.Rate(), most: cfg.Pace.Most, longest: cfg.Longest, size: cfg.Queue}
	return a
}

// Wait returns nil when a join of a cost (CostFull, CostHolds) may go on. Its errors are gRPC statuses with a RetryInfo:
// ResourceExhausted where the wait would be, or became, longer than Longest; else the context's.
func (a *Admission) Wait(ctx context.Context, cost float64) error {
	if a.cfg.Off {
		a.mu.Lock()
		a.state.Admitted++
		a.mu.Unlock()
		a.cfg.Waited(0, nil)
		return nil
	}
	began := time.Now()
	t := &ticket{cost: max(cost, 0)}
	a.mu.Lock()
	a.gate.arrive(began, t)
	delay, waits := a.gate.expected(), t.element != nil
	a.mu.Unlock()
	if waits {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
	var err error
	select {
	case <-t.open:
		if t.refused {
			err = exhausted(delay)
		}
	case <-ctx.Done():
		a.mu.Lock()
		a.gate.leave(t)
		a.mu.Unlock()
		err = status.FromContextError(ctx.Err()).Err()
	}
	a.mu.Lock()
	switch {
	case err == nil:
		a.cost += t.cost
		a.state.Admitted++
	case t.refused: // what that took must not look as if it were the cost of those who are let in: fewer and fewer would be
		a.cost += CostRefused
		a.state.Refused++
	}
	a.mu.Unlock()
	a.cfg.Waited(time.Since(began), err)
	return err
}

func exhausted(delay time.Duration) error {
	s := status.New(codes.ResourceExhausted, "this replica lets new streams in as fast as it can, and too many wait: try again, or another replica")
	if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(min(max(delay/2, time.Second), 30*time.Second))}); err == nil {
		s = with
	}
	return s.Err()
}

// State is what is to be shown.
func (a *Admission) State() AdmissionState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.state
	s.Rate, s.Waiting, s.Delay = a.gate.rate, a.gate.waiting.Len(), a.gate.expected()
	return s
}

// Run lets those in that wait, and measures, until ctx ends. Its error is the context's.
func (a *Admission) Run(ctx context.Context) error {
	measure := time.NewTicker(a.cfg.Every)
	defer measure.Stop()
	look := time.NewTicker(min(a.cfg.Every, memoryEvery))
	defer look.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-measure.C:
			a.measure()
		case <-look.C:
			a.pace.Remember(a.cfg.Meter.Memory())
			a.apply()
		case <-a.wake:
		case <-timer.C:
		}
		a.mu.Lock()
		next := a.gate.advance(time.Now())
		a.mu.Unlock()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

func (a *Admission) measure() {
	m := a.cfg.Meter.Measure()
	a.mu.Lock()
	m.Cost, a.cost = a.cost, 0
	a.mu.Unlock()
	a.pace.Measured(m)
	a.apply()
}

// apply has the gate go by the pace as it is now.
func (a *Admission) apply() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gate.fill(time.Now()) // at the rate that was
	a.gate.rate, a.gate.full = a.pace.Rate(), a.pace.Full()
	a.state.JoinCost = a.pace.Cost()
}
