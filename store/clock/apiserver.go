package clock

import (
	"context"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// Requests for an API server's time.
const (
	apiServer = "API server"     // name of its clock among the others; names of processes have no space
	askEvery  = time.Minute      // pause between two requests
	askFor    = 10 * time.Second // timeout of a request: the time in a slower response is too inaccurate
)

// Date requests an API server's time (apiserver.Client.Date). said is the time in whole seconds, rounded down.
// roundTrip is the duration of the request. An error means that the time is not known.
type Date func(context.Context) (said time.Time, roundTrip time.Duration, err error)

// Follow requests an API server's time about once a minute, and compares it like the time of another process. So a
// process that signs alone has another clock to compare with. Errors of date are logged, and the request is retried.
// Three minutes after the last response, the API server's clock no longer counts. Follow blocks until ctx ends, and
// returns the context's error.
func (c *Clock) Follow(ctx context.Context, date Date) error {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, askFor)
		said, roundTrip, err := date(asking)
		cancel()
		if err == nil {
			c.Heard(Word{apiServer, said.Add(time.Second / 2)}, roundTrip) // accurate to half a second and half the round trip
		} else if ctx.Err() == nil {
			c.cfg.Log.Debug("the API server's time cannot be read; trying again", obs.KeyError, err)
		}
		_ = loop.Pause(ctx, askEvery)
	}
	return ctx.Err()
}
