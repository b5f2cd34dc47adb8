package kvtest

import (
	"context"
	"testing"
)

// Run runs a loop in the background until the test ends or stop is called. stop cancels the loop's context and waits
// until the loop has returned. It may be called more than once. Any error of the loop fails the test, also that of its
// context.
func Run(t testing.TB, loop func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop(ctx); close(done) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}
