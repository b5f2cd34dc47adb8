// Package probe runs the probes and hooks of containers, over HTTP, TCP, gRPC or by a command, and evaluates their
// results.
//
// Owns: its connections. Reads: nothing. Never: decides about the fate of a container.
package probe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Threshold counts consecutive results of one probe.
type Threshold struct {
	Success, Failure int32 // consecutive results that decide
	good, bad        int32
}

// NewThreshold returns the threshold of a probe.
func NewThreshold(p *corev1.Probe) *Threshold {
	return &Threshold{Success: max(p.SuccessThreshold, 1), Failure: max(p.FailureThreshold, 1)}
}

// Add adds a result. decided reports that enough equal results followed each other.
func (t *Threshold) Add(ok bool) (decided bool) {
	if ok {
		t.good, t.bad = t.good+1, 0
		return t.good >= t.Success
	}
	t.good, t.bad = 0, t.bad+1
	return t.bad >= t.Failure
}

// Run runs a probe periodically until ctx ends, and reports each result that decides. check gets a context with the
// probe's timeout.
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
