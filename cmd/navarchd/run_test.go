package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A stop takes as long as it takes, but no longer than --shutdown-duration; what fails before is told as it is.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		defer close(release)
		start := time.Now()
		time.AfterFunc(time.Hour, cancel)
		err := within(ctx, 7*time.Second, func() error { <-release; return nil })
		if err == nil || !strings.Contains(err.Error(), "--shutdown-duration") || time.Since(start) != time.Hour+7*time.Second {
			t.Errorf("a stop that hangs: %v after %v", err, time.Since(start))
		}
		if err := within(ctx, 7*time.Second, func() error { time.Sleep(6 * time.Second); return nil }); err != nil {
			t.Errorf("a stop in time: %v", err)
		}
		broken := errors.New("broken")
		if err := within(t.Context(), 0, func() error { return broken }); !errors.Is(err, broken) {
			t.Errorf("a loop that fails: %v", err)
		}
	})
}
