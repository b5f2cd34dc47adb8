package plan

import "context"

// call runs f in the loop's goroutine. Where f panics, that is the error, and the planner is made anew.
func (l *Loop) call(ctx context.Context, f func()) error {
	return l.run(ctx, func() (err error) {
		if err = l.guarded(f); err != nil {
			l.restore()
		}
		return err
	})
}

// look is call for what changes nothing: a planner that was looked at is as it was.
func (l *Loop) look(f func()) {
	_ = l.run(context.Background(), func() error { return l.guarded(f) }) // logged; who asks is told nothing
}

func (l *Loop) run(ctx context.Context, f func() error) (err error) {
	done := make(chan struct{})
	select {
	case l.calls <- func() { defer close(done); err = f() }:
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
