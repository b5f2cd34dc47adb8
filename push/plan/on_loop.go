package plan

import (
	"context"
	"errors"
	"maps"
	"time"

	"navarch.io/navarch/push/view"
)

// call runs f in the loop's goroutine. If f panics, the planner is replaced and call returns an error. Other errors are
// the context's error and errEnded.
func (l *Loop) call(ctx context.Context, f func()) error {
	return l.run(ctx, func() (err error) {
		if err = l.guarded(f); err != nil {
			l.restore()
		}
		return err
	})
}

// callFor runs f in the loop's goroutine, as call does. The parameter who is the identity that requests this. If f
// panics, further requests of this identity fail with errFaulty for the duration searchEvery. Without this limit,
// repeated requests would replace the planner again and again, and each replacement plans all proxies.
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

// inspect runs f, which only reads, in the loop's goroutine. After a panic in f the planner is kept.
func (l *Loop) inspect(f func()) {
	_ = l.run(context.Background(), func() error { // guarded logs a panic, and the caller's results stay zero
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
