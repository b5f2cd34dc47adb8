package kvtest

import (
	"context"
	"testing"
)

// Run runs a loop until the test ends or stop is called. stop waits for the loop's end. An error of the loop fails the
// test.
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
