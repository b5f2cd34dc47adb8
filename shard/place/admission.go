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

// AdmissionConfig configures the admission of new streams. A zero field means the default. A join is the start of one
// stream.
type AdmissionConfig struct {
	Pace PaceConfig
	// Longest is the longest wait of a join in the queue; 0: 2 minutes. A join that waits costs less than a refused
	// one, because a refused client comes back.
	Longest time.Duration
	Queue   int                        // maximum number of joins that wait; 0: 20,000
	Every   time.Duration              // time between two calls of Meter.Measure; 0: 1 s
	Meter   Meter                      // measures the process; nil: a meter of this process
	Waited  func(time.Duration, error) // receives the duration and result of each Wait, in its goroutine; nil: not called
	Off     bool                       // every join is admitted at once, to measure the effect of the admission
}

// Meter measures this process. Only the goroutine of Admission.Run calls its methods.
type Meter interface {
	Measure() Measure // sets all fields except Cost, for the time since the last call
	Memory() float64  // only the present value of Measure.Memory
}

// memoryEvery is the interval of memory measurements. Many joins at once can fill the memory of a small container
// within a second.
const memoryEvery = 50 * time.Millisecond

// Admission admits new streams at a pace that follows the measured headroom. The processors stay busy but not
// overloaded, and fewer joins are admitted while memory is short. A join is the start of one stream. Joins normally
// wait instead of being refused (Wait). Any goroutine may call Wait and State. One goroutine must execute Run.
type Admission struct {
	cfg  AdmissionConfig
	pace *Pace // owned by Run
	wake chan struct{}

	mu    sync.Mutex // guards the fields below; no other lock is acquired while it is held
	gate  gate
	cost  float64 // total cost of the joins admitted or refused since the last measurement
	state AdmissionState
}

// AdmissionState is the state of an Admission, for metrics and pages.
type AdmissionState struct {
	Rate     float64       // total cost of the joins that may be admitted per second; a full join costs CostFull
	JoinCost time.Duration // measured CPU time of a full join (Pace.Cost); 0 until Run has measured
	Waiting  int           // joins that wait
	Delay    time.Duration // expected wait of a join that comes now; AdmissionConfig.Longest while Rate is 0
	Admitted uint64        // joins admitted so far
	Refused  uint64        // joins refused so far
}

// NewAdmission returns an Admission. Joins in the queue are admitted only while Run runs.
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

// Wait blocks until a join is admitted. The argument cost is the cost of the join (CostFull, CostHolds). A negative
// cost counts as 0. If AdmissionConfig.Off is set, the join is admitted at once. Errors are gRPC statuses:
//
//   - ResourceExhausted, with a RetryInfo of 1 to 30 s. The wait exceeds Longest or is expected to exceed it, the
//     queue is full, or memory is full and 32 joins wait.
//   - Canceled or DeadlineExceeded. ctx ended. Even with an ended ctx, a join that need not wait may be admitted.
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
	// A refusal counts with its own cost. Without this cost, refusals would raise the measured cost of admitted joins.
	// Fewer and fewer joins would be admitted.
	case t.refused:
		a.cost += CostRefused
		a.state.Refused++
	}
	a.mu.Unlock()
	a.cfg.Waited(time.Since(began), err)
	return err
}

func exhausted(delay time.Duration) error {
	s := status.New(codes.ResourceExhausted, "this replica admits new streams as fast as it can, and too many wait:"+
		" try again, or connect to another replica")
	retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(min(max(delay/2, time.Second), 30*time.Second))}
	if with, err := s.WithDetails(retry); err == nil {
		s = with
	}
	return s.Err()
}

// State returns the present state, for metrics and pages.
func (a *Admission) State() AdmissionState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.state
	s.Rate, s.Waiting, s.Delay = a.gate.rate, a.gate.waiting.Len(), a.gate.expected()
	return s
}

// Run admits waiting joins and measures the process until ctx ends. It returns the error of ctx.
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

// apply copies the present rate and the state of the memory from the pace to the gate.
func (a *Admission) apply() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gate.fill(time.Now()) // the time until now counts at the previous rate
	a.gate.rate, a.gate.full = a.pace.Rate(), a.pace.Full()
	a.state.JoinCost = a.pace.Cost()
}
