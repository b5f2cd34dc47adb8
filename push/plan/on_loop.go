package plan

import (
	"context"
	"errors"
	"maps"
	"time"

	"navarch.io/navarch/push/view"
)

// call runs f in the loop's goroutine. If f panics, the planner is replaced and call returns an error. Otherwise the
// error is the context's, or errEnded.
func (l *Loop) call(ctx context.Context, f func()) error {
	return l.run(ctx, func() (err error) {
		if err = l.guarded(f); err != nil {
			l.restore()
		}
		return err
	})
}

// callFor is call for a request of a client with an identity. After a panic in f, further requests of the identity fail
// with errFaulty for searchEvery, because each replacement of the planner plans all proxies again.
func (l *Loop) callFor(ctx context.Context, who view.Identity, f func()) error {
	return l.run(ctx, func() error {
		now := time.Now()
		maps.DeleteFunc(l.faulty, func(_ view.Identity, at time.Time) bool { return now.Sub(at) >= searchEvery })
		if _, is := l.faulty[who]; is {
			return errFaulty
		}
		err := l.guarded(f)
		if err != nil {
			l.faulty[who] = now
			l.restore()
		}
		return err
	})
}

// errFaulty is the error of requests by an identity that recently made the planner panic.
var errFaulty = errors.New("the plan has panicked with what this identity asks for")

// inspect is call for a function that only reads. After a panic in f the planner is kept.
func (l *Loop) inspect(f func()) {
	_ = l.run(context.Background(), func() error { // guarded logs a panic, and the caller then has zero results
		l.unchanged = true
		return l.guarded(f)
	})
}

// run runs f in the loop's goroutine. The error is that of f, that of the context, or errEnded.
func (l *Loop) run(ctx context.Context, f func() error) (err error) {
	done := make(chan struct{})
	select {
	case l.calls <- func() {
		defer close(done)
		if err = f(); !l.unchanged {
			l.edition.Add(1)
		}
	}:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ended:
		return errEnded
	}
	select {
	case <-done:
		return err
	case <-l.ended:
		return errEnded
	}
}
