package loop

import (
	"context"
	"time"
)

// Pause waits for d, or until ctx ends: the error is the context's then, else nil.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
