package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// admission runs the queue of certificate requests. It passes events to the queue's Step, and carries out the effects
// that Step returns.
type admission struct {
	now   func() time.Time
	mu    sync.Mutex // held during Step, which does not block; no other lock is taken meanwhile
	queue *queue
	alarm *time.Timer
}

func newAdmission(l Limits, now func() time.Time) *admission {
	return &admission{now: now, queue: newQueue(l)}
}

func (d *admission) step(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for _, e := range d.queue.Step(now, e) {
		switch e := e.(type) {
		case start:
			e.t.admitted <- nil
		case refuse:
			e.t.admitted <- status.Error(e.code, e.why)
		case wakeAt:
			if d.alarm != nil {
				d.alarm.Stop()
			}
			d.alarm = time.AfterFunc(e.at.Sub(now), func() { d.step(tick{}) })
		}
	}
}

// Stats contains the present numbers of certificate requests in each phase, for gauges.
type Stats struct {
	First, Renewals int // first certificates and renewals in the queue, without the delayed ones
	Delayed         int // delayed, because their identity or credential exceeds Limits.Rate
	Signing         int // being signed; with a Registrar, waiting for its answer
	Writing         int // signed, and being written to the Journal; always 0 with a Registrar
	Bytes           int // bytes of all CSRs that are queued or delayed
}

// Stats returns the present counts.
func (s *Server) Stats() Stats {
	s.admission.mu.Lock()
	defer s.admission.mu.Unlock()
	q := s.admission.queue
	return Stats{First: q.first.n, Renewals: q.renew.n, Delayed: len(q.delayed), Signing: q.running, Writing: q.writing, Bytes: q.memory.used}
}

// refuseEarly returns a gRPC status if the queue has no room or time for any further request. The argument first is
// true for a first certificate, and false for a renewal. refuseEarly is called before the caller is authenticated, so
// that refused requests cost no cryptography. It reserves no place in the queue.
func (d *admission) refuseEarly(ctx context.Context, first bool, maxWait time.Duration) error {
	t := newTicket(ctx, d.now(), holder{}, first, 0, maxWait)
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.queue.refusal(d.now(), t); r != nil {
		return status.Error(r.code, r.why)
	}
	return nil
}

func newTicket(ctx context.Context, now time.Time, by holder, first bool, bytes int, maxWait time.Duration) *ticket {
	t := &ticket{holder: by, first: first, bytes: bytes, arrived: now,
		ready: now, deadline: now.Add(maxWait), expiry: codes.ResourceExhausted, admitted: make(chan error, 1)}
	if own, ok := ctx.Deadline(); ok && own.Before(t.deadline) {
		t.deadline, t.expiry = own, codes.DeadlineExceeded
	}
	return t
}

// enter waits in the queue for a signing slot, and returns a pass, which occupies the slot. The caller must call leave
// once on the pass. Errors are gRPC statuses: the queue refused the request, maxWait or the deadline of ctx passed, or
// ctx was cancelled.
func (d *admission) enter(ctx context.Context, by holder, first bool, bytes int, maxWait time.Duration) (*pass, error) {
	t := newTicket(ctx, d.now(), by, first, bytes, maxWait)
	d.step(arrive{t})
	timer := time.NewTimer(t.deadline.Sub(d.now()))
	defer timer.Stop()
	var gone error
	select {
	case err := <-t.admitted:
		return d.pass(err)
	case <-ctx.Done():
		gone = status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		gone = status.Error(t.expiry, "not signed in time: try again with back-off")
	}
	d.step(abandon{t})
	select {
	case err := <-t.admitted: // the decision came before the abandonment
		return d.pass(err)
	default:
		return nil, gone
	}
}

func (d *admission) pass(err error) (*pass, error) {
	if err != nil {
		return nil, err
	}
	return &pass{admission: d, began: d.now()}, nil
}

// pass is an occupied signing slot.
type pass struct {
	admission *admission
	began     time.Time
}

// leave frees the slot. If written is true, a certificate was signed and must be journalled. In this case the caller
// must also call recorded, after the journal has answered.
func (p *pass) leave(written bool) { p.admission.step(signed{p.admission.now().Sub(p.began), written}) }

func (p *pass) recorded() { p.admission.step(recorded{}) }

// contextual converts an error of a context into a gRPC status. It returns other errors unchanged.
func contextual(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return err
}
