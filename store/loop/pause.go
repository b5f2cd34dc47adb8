package loop

import (
	"context"
	"time"
)

// Pause waits for d or until ctx ends. It returns ctx.Err(): nil unless ctx has ended.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
