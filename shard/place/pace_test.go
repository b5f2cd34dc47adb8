package place

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// machine is a model of a replica: joins have a true cost, and something else is going on.
type machine struct {
	cores, cost, other float64
	pace               *Pace
	busy               float64 // in the last second
}

// second admits as many of the waiting proxies as the pace permits, and returns their number.
func (m *machine) second(waiting float64) float64 {
	joins := min(m.pace.Rate(), waiting)
	used := m.other + joins*m.cost
	m.busy = used / m.cores
	latency := time.Millisecond
	if m.busy > 1.05 {
		latency = 100 * time.Millisecond
	}
	m.pace.Measured(Measure{Period: time.Second, CPU: time.Duration(min(used, m.cores) * float64(time.Second)), Cost: joins, Latency: latency})
	return joins
}

// For any cost of a join, a storm is admitted at the pace that the processors permit, after some seconds of
// measurement: not much slower, and never so fast that they are overloaded for long.
func TestPaceFindsTheHeadroom(t *testing.T) {
	for _, cores := range []float64{1, 2, 16} {
		for _, cost := range []float64{.0003, .001, .005, .03} {
			for _, other := range []float64{0, .4} {
				m := machine{cores: cores, cost: cost, other: other * cores, pace: newPace(PaceConfig{Cores: cores})}
				for range 20 {
					m.second(0)
				}
				ideal := (.85 - other) * cores / cost
				overrun, rate := 0, 0.
				for range 40 {
					rate = m.second(math.Inf(1))
					if m.busy > 1.05 {
						overrun++
					}
				}
				if rate < .7*ideal || rate > 1.2*ideal || overrun > 8 {
					t.Errorf("%v cores, a join of %v s, %.1f busy: %.0f a second, ideal is %.0f; overrun for %d s", cores, cost, other, rate, ideal, overrun)
				}
				// Other load appears: joins slow down.
				m.other = .7 * cores
				for range 15 {
					m.second(math.Inf(1))
				}
				if m.busy > 1.05 {
					t.Errorf("%v cores, a join of %v s: another load came, and the machine is %.2f busy", cores, cost, m.busy)
				}
			}
		}
	}
}

func TestPaceBounds(t *testing.T) {
	p := newPace(PaceConfig{Cores: 2})
	full := p.Rate()
	for range 30 { // something else uses everything
		p.Measured(Measure{Period: time.Second, CPU: 2 * time.Second, Latency: time.Second})
	}
	if p.Rate() != 40 {
		t.Errorf("a busy machine lets %v in a second, want the least", p.Rate())
	}
	for range 60 {
		p.Measured(Measure{Period: time.Second})
	}
	if p.Rate() < .95*full {
		t.Errorf("when it is idle again: %v a second, was %v", p.Rate(), full)
	}
	p.Measured(Measure{Period: time.Second, Memory: .86})
	if r := p.Rate(); r <= 0 || r > .6*full {
		t.Errorf("memory is tight: %v a second of %v", r, full)
	}
	p.Measured(Measure{Period: time.Second, Memory: .95})
	if p.Rate() != 2 {
		t.Errorf("memory is short: %v a second, want a trickle", p.Rate())
	}
	p.Measured(Measure{})
	if p.Rate() != 2 {
		t.Error("no period, and something was learned")
	}
	// Above the limit joins wait for ever, or the kernel ends the process: this case occurs only there.
	p.Measured(Measure{Period: time.Second, Memory: 2})
	if p.Rate() != 2 || p.Overfull() {
		t.Errorf("memory is above a limit that nobody enforces: %v a second, overfull %t", p.Rate(), p.Overfull())
	}
	p = newPace(PaceConfig{Cores: 2, Contained: true})
	for memory, want := range map[float64]float64{1.02: 2, 1.03: 0} {
		p.Measured(Measure{Period: time.Second, Memory: memory})
		if p.Rate() != want || p.Overfull() != (want == 0) {
			t.Errorf("%v of what the container has: %v a second, overfull %t", memory, p.Rate(), p.Overfull())
		}
	}
}

// No stream is admitted while memory is overfull, and waiting ones are admitted a moment after there is room again.
func TestOverfullLetsNobodyIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, meter := admission(t, AdmissionConfig{Pace: PaceConfig{Contained: true}})
		meter.measure.Store(&Measure{Memory: 1.1})
		time.Sleep(2 * memoryEvery)
		if rate := a.State().Rate; rate != 0 {
			t.Errorf("it is overfull, and %v a second are let in", rate)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range fewWait {
			go func() { _ = a.Wait(ctx, CostFull) }()
		}
		synctest.Wait()
		s := status.Convert(a.Wait(t.Context(), CostFull))
		if len(s.Details()) != 1 || s.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration() != 30*time.Second {
			t.Errorf("while it is overfull: %v, %v", s, s.Details())
		}
		cancel()
		synctest.Wait()
		began := time.Now()
		time.AfterFunc(10*time.Second, func() { meter.measure.Store(&Measure{Memory: .5}) })
		if err := a.Wait(t.Context(), CostFull); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 10*time.Second+2*memoryEvery || a.State().Rate == 0 {
			t.Errorf("let in after %v, then %v a second", took, a.State().Rate)
		}
	})
}

// fixed is a meter that returns a given measurement.
type fixed struct{ measure atomic.Pointer[Measure] }

func (f *fixed) Measure() Measure { return *f.measure.Load() }
func (f *fixed) Memory() float64  { return f.Measure().Memory }

func admission(t *testing.T, cfg AdmissionConfig) (*Admission, *fixed) {
	t.Helper()
	meter := &fixed{}
	meter.measure.Store(&Measure{})
	cfg.Meter = meter
	a := NewAdmission(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return a, meter
}

// storm lets n join at once, and returns how long the last waited, and how many were refused.
func storm(t *testing.T, a *Admission, n int, cost float64) (last time.Duration, refused int) {
	t.Helper()
	var joining sync.WaitGroup
	var failed atomic.Int64
	began := time.Now()
	for range n {
		joining.Go(func() {
			err := a.Wait(t.Context(), cost)
			if err == nil {
				return
			}
			failed.Add(1)
			s := status.Convert(err)
			if len(s.Details()) != 1 || s.Code() != codes.ResourceExhausted {
				t.Errorf("refused with %v", s)
			} else if retry := s.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration(); retry < time.Second || retry > 30*time.Second {
				t.Errorf("retry after %v", retry)
			}
		})
	}
	joining.Wait()
	return time.Since(began), int(failed.Load())
}

// No join is refused while a wait of some seconds suffices, and the pace is kept. Proxies that hold everything join
// four times as fast.
func TestAdmissionPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := admission(t, AdmissionConfig{Pace: PaceConfig{Cores: 1, FirstCost: .0085}}) // 100 a second
		if last, refused := storm(t, a, 1000, CostFull); refused != 0 || last < 9*time.Second || last > 11*time.Second {
			t.Errorf("1000 at 100 a second: the last after %v, %d refused", last, refused)
		}
		time.Sleep(time.Second)
		if last, refused := storm(t, a, 1000, CostHolds); refused != 0 || last < 2*time.Second || last > 3*time.Second {
			t.Errorf("1000 that hold everything: the last after %v, %d refused", last, refused)
		}
		if s := a.State(); s.Admitted != 2000 || s.Waiting != 0 || s.Refused != 0 || s.Rate < 90 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		began := time.Now()
		if err := a.Wait(t.Context(), CostFull); err != nil || time.Since(began) != 0 {
			t.Errorf("a lonely one waits %v, %v", time.Since(began), err)
		}
	})
}

// A join that would wait for too long is refused at once, with a time for the next attempt. The queue is bounded.
func TestAdmissionRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, meter := admission(t, AdmissionConfig{Pace: PaceConfig{Cores: 1, FirstCost: .0085}, Longest: 5 * time.Second})
		time.AfterFunc(time.Millisecond, func() {
			if s := a.State(); s.Refused < 1400 {
				t.Errorf("of 2000 only %d were refused at once", s.Refused)
			}
		})
		last, refused := storm(t, a, 2000, CostFull)
		if served := 2000 - refused; served < 500 || served > 560 || last > 6*time.Second {
			t.Errorf("%d of 2000 were served in %v at 100 a second, 5 s at most", served, last)
		}
		// Memory is short: a few come in, the others wait or are refused; then it is over.
		meter.measure.Store(&Measure{Period: time.Second, Memory: .95})
		time.Sleep(2 * time.Second)
		if last, refused := storm(t, a, 100, CostFull); refused < 80 || refused > 95 || last > 6*time.Second {
			t.Errorf("no memory: %d of 100 refused after %v", refused, last)
		}
		meter.measure.Store(&Measure{Period: time.Second})
		time.Sleep(2 * time.Second)
		if _, refused := storm(t, a, 10, CostFull); refused != 0 {
			t.Errorf("memory again: %d of 10 refused", refused)
		}
		full, _ := admission(t, AdmissionConfig{Pace: PaceConfig{Cores: 1, FirstCost: .0085}, Queue: 7})
		if _, refused := storm(t, full, 100, CostFull); refused < 70 || refused > 75 {
			t.Errorf("a queue of 7: %d of 100 refused", refused)
		}
	})
}

// worked measures a process of two cores in which a join costs 4 ms, and a refusal 1.5 ms.
type worked struct {
	state func() AdmissionState
	at    time.Time
	was   AdmissionState
}

func (w *worked) Memory() float64 { return 0 }

func (w *worked) Measure() Measure {
	s, now := w.state(), time.Now()
	busy := time.Duration(s.Admitted-w.was.Admitted)*4*time.Millisecond + time.Duration(s.Refused-w.was.Refused)*1500*time.Microsecond
	m := Measure{Period: now.Sub(w.at), CPU: min(busy, 2*now.Sub(w.at))}
	if busy > m.CPU {
		m.Latency = 2 * fullMachine
	}
	w.at, w.was = now, s
	return m
}

// The cost of refusals does not count as the cost of joins; otherwise fewer and fewer joins would be admitted, down to
// the minimum.
func TestRefusalsDoNotCauseMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meter := &worked{at: time.Now(), state: func() AdmissionState { return AdmissionState{} }}
		a := NewAdmission(AdmissionConfig{Pace: PaceConfig{Cores: 2}, Longest: 3 * time.Second, Meter: meter})
		meter.state = a.State
		ctx, cancel := context.WithCancel(t.Context())
		var running, joining sync.WaitGroup
		running.Go(func() { _ = a.Run(ctx) })
		began := time.Now()
		for i := range 5000 {
			joining.Go(func() {
				for try := 0; a.Wait(t.Context(), CostFull) != nil; try++ {
					time.Sleep(time.Second + time.Duration(i%4000)*time.Millisecond)
				}
			})
		}
		joining.Wait()
		if took := time.Since(began); took > time.Minute { // 12 s would suffice without refusals
			t.Errorf("5000 joins at 4 ms took %v of two cores; %+v", took, a.State())
		}
		if a.State().Refused < 5000 {
			t.Errorf("%d were refused: the test shows nothing", a.State().Refused)
		}
		cancel()
		running.Wait()
	})
}

// PILOT_MAX_REQUESTS_PER_SECOND limits the number of joins, whatever their cost; a caller that gives up leaves the
// queue.
func TestAdmissionCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := admission(t, AdmissionConfig{Pace: PaceConfig{Cores: 1, FirstCost: .0085, Most: 25}})
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 100)
		var joining sync.WaitGroup
		for range 200 {
			joining.Go(func() { _ = a.Wait(t.Context(), CostHolds) })
		}
		synctest.Wait()
		for range 100 {
			joining.Go(func() { gone <- a.Wait(ctx, CostHolds) })
		}
		synctest.Wait()
		if s := a.State(); s.Waiting < 290 || s.Delay < 11*time.Second || s.Delay > 12*time.Second {
			t.Errorf("%+v", s)
		}
		cancel()
		for range 100 {
			if err := <-gone; status.Code(err) != codes.Canceled || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who gave up: %v", err)
			}
		}
		if s := a.State(); s.Waiting > 200 || s.Delay > 9*time.Second {
			t.Errorf("who gave up still waits: %+v", s)
		}
		began := time.Now()
		joining.Wait()
		if took := time.Since(began); took < 7*time.Second || took > 9*time.Second {
			t.Errorf("200 at 25 a second took %v", took)
		}
	})
}

// The meter sees the processor time that is spent, and no memory where there is no limit.
func TestProcessMeter(t *testing.T) {
	m := newProcessMeter()
	var got Measure
	for x, began := 0., time.Now(); got.CPU < 5*time.Millisecond; {
		for range 1_000_000 {
			x += math.Sqrt(x + 1)
		}
		one := m.Measure()
		got.CPU, got.Period = got.CPU+one.CPU, got.Period+one.Period
		if one.Memory < 0 || one.Memory > 1 || one.Latency < 0 || one.Period <= 0 {
			t.Fatalf("%+v", one)
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("no processor time is seen: %+v", got)
		}
	}
	if got.CPU > got.Period*time.Duration(runtime.NumCPU()+1) {
		t.Errorf("%+v", got)
	}
}
