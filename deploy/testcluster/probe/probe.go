// Package probe asks containers how they are, as their probes and hooks say: over HTTP, TCP, gRPC, or by a command; and decides what the
// answers come to.
//
// Owns: its connections.  Reads: nothing.  Never: decides what becomes of a container.
package probe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Threshold counts answers of one probe.
type Threshold struct {
	Success, Failure int32 // how many in a row decide
	good, bad        int32
}

// NewThreshold is that of a probe.
func NewThreshold(p *corev1.Probe) *Threshold {
	return &Threshold{Success: max(p.SuccessThreshold, 1), Failure: max(p.FailureThreshold, 1)}
}

// Add takes an answer. decided says that enough of the same kind came in a row.
func (t *Threshold) Add(ok bool) (decided bool) {
	if ok {
		t.good, t.bad = t.good+1, 0
		return t.good >= t.Success
	}
	t.good, t.bad = 0, t.bad+1
	return t.bad >= t.Failure
}

// Run asks until the context ends, and reports each answer that decides. check has the probe's timeout.
func Run(ctx context.Context, p *corev1.Probe, check func(context.Context) error, report func(error)) {
	t := NewThreshold(p)
	if !wait(ctx, time.Duration(p.InitialDelaySeconds)*time.Second) {
		return
	}
	for {
		one, cancel := context.WithTimeout(ctx, time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
		err := check(one)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if t.Add(err == nil) {
			report(err)
		}
		if !wait(ctx, time.Duration(max(p.PeriodSeconds, 1))*time.Second) {
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
