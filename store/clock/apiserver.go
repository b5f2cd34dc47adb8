package clock

import (
	"context"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// Requests for an API server's time.
const (
	apiServer = "API server"     // name of the API server's clock; it has a space, unlike all names of processes
	askEvery  = time.Minute      // pause between two requests
	askFor    = 10 * time.Second // timeout of a request: the time in a slower response is too inaccurate
)

// Date requests an API server's time (apiserver.Client.Date). The result said is the time in whole seconds, rounded
// down. The result roundTrip is the duration of the request. An error means that the time is not known.
type Date func(context.Context) (said time.Time, roundTrip time.Duration, err error)

// Follow requests an API server's time about once a minute, and uses it like the clock of another process. So even the
// only process of a mesh can compare its clock. Errors of date are logged, and the request is retried. Three minutes
// after the last response, the API server's clock no longer counts. Follow blocks until ctx ends, and returns the
// context's error.
func (c *Clock) Follow(ctx context.Context, date Date) error {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, askFor)
		said, roundTrip, err := date(asking)
		cancel()
		if err == nil {
			c.Heard(Word{apiServer, said.Add(time.Second / 2)}, roundTrip) // the error is at most 0.5 s + roundTrip/2
		} else if ctx.Err() == nil {
			c.cfg.Log.Debug("the API server's time cannot be read; trying again", obs.KeyError, err)
		}
		_ = loop.Pause(ctx, askEvery)
	}
	return ctx.Err()
}
