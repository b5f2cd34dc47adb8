package clock

import (
	"context"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// Requests for an API server's time.
const (
	apiServer = "API server" // its name among the other clocks; names of processes have no space
	askEvery  = time.Minute
	askFor    = 10 * time.Second // slower responses are too inaccurate
)

// Date requests an API server's time. said is in whole seconds, rounded down; roundTrip is the duration of the request.
type Date func(context.Context) (said time.Time, roundTrip time.Duration, err error)

// Follow requests an API server's time once a minute until ctx ends, and adds its clock to those that are compared. So
// even the only process that signs has another clock to compare with. While the API server does not answer, the other
// clocks count alone. The error is the context's.
func (c *Clock) Follow(ctx context.Context, date Date) error {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, askFor)
		said, roundTrip, err := date(asking)
		cancel()
		if err == nil {
			c.Heard(Word{apiServer, said.Add(time.Second / 2)}, roundTrip) // accurate to half a second and half the round trip
		} else if ctx.Err() == nil {
			c.cfg.Log.Debug("the API server does not say what time it is", obs.KeyError, err)
		}
		_ = loop.Pause(ctx, askEvery)
	}
	return ctx.Err()
}
