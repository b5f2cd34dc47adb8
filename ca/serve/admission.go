package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// admission is the thin half of the queue: it feeds events to Step, and does what Step says.
type admission struct {
	now   func() time.Time
	mu    sync.Mutex // a leaf: Step neither blocks nor calls out
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

// Stats is how many requests are where, for gauges.
type Stats struct {
	First, Renewals int // queued, by kind
	Delayed         int // held back by the rate of their identity or credential
	Signing         int // in a slot
	Writing         int // signed, and not durable yet
	Bytes           int // of the requests that wait
}

// Stats is what stands now.
func (s *Server) Stats() Stats {
	s.admission.mu.Lock()
	defer s.admission.mu.Unlock()
	q := s.admission.queue
	return Stats{First: q.first.n, Renewals: q.renew.n, Delayed: len(q.late), Signing: q.running, Writing: q.writing, Bytes: q.held.used}
}

// hopeless refuses what enter would refuse, judged by the kind alone: so that a storm is not even authenticated where it
// cannot be served. It takes no place.
func (d *admission) hopeless(ctx context.Context, first bool, maxWait time.Duration) error {
	t := newTicket(ctx, d.now(), holder{}, first, 0, maxWait)
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.queue.judge(d.now(), t); r != nil {
		return status.Error(r.code, r.why)
	}
	return nil
}

func newTicket(ctx context.Context, now time.Time, by holder, first bool, bytes int, maxWait time.Duration) *ticket {
	t := &ticket{holder: by, first: first, bytes: bytes, arrived: now, ready: now, deadline: now.Add(maxWait), expiry: codes.ResourceExhausted, admitted: make(chan error, 1)}
	if own, ok := ctx.Deadline(); ok && own.Before(t.deadline) {
		t.deadline, t.expiry = own, codes.DeadlineExceeded
	}
	return t
}

// enter blocks until the caller may sign (nil; it must then call leave once), or is refused with a gRPC status.
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
	case err := <-t.admitted: // the decision came first
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

// pass is a signing slot that is held.
type pass struct {
	admission *admission
	began     time.Time
}

// leave gives the slot back; written says that an entry is to be journalled, and recorded follows.
func (p *pass) leave(written bool) { p.admission.step(signed{p.admission.now().Sub(p.began), written}) }

func (p *pass) recorded() { p.admission.step(recorded{}) }

// contextual turns an error of ctx into its status, and leaves others alone.
func contextual(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return err
}
