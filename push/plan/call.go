package plan

import (
	"context"
	"errors"
	"maps"
	"time"

	"navarch.io/navarch/push/view"
)

// call runs f in the loop's goroutine. Where f panics, that is the error, and the planner is made again.
func (l *Loop) call(ctx context.Context, f func()) error {
	return l.run(ctx, func() (err error) {
		if err = l.guarded(f); err != nil {
			l.restore()
		}
		return err
	})
}

// callFor is call for what a client of an identity brings about. Where f panics, what the identity brings about is errFaulty for
// searchEvery: each planner that is made again is work for all proxies.
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

// errFaulty: what a client of the same identity asked for has made the planner panic a moment ago.
var errFaulty = errors.New("the plan has panicked with what this identity asks for")

// look is call for what changes nothing: a planner that was looked at is as it was.
func (l *Loop) look(f func()) {
	_ = l.run(context.Background(), func() error { // the error is logged; the caller has what f has set before
		l.looked = true
		return l.guarded(f)
	})
}

func (l *Loop) run(ctx context.Context, f func() error) (err error) {
	done := make(chan struct{})
	select {
	case l.calls <- func() {
		defer close(done)
		if err = f(); !l.looked {
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
