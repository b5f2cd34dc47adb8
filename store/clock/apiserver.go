package clock

import (
	"context"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// What is asked of an API server (issue 12, item 15).
const (
	apiServer = "API server" // its name among the other clocks: no process has a space in its name
	askEvery  = time.Minute
	askFor    = 10 * time.Second // answers that take longer say too little
)

// Date says what time it is by an API server's clock, in whole seconds that have begun, and how long it took to ask.
type Date func(context.Context) (said time.Time, roundTrip time.Duration, err error)

// Follow asks an API server for its time, once a minute, until ctx ends: its clock is one more among those that are compared, also for a
// process that is the only one which signs. While it does not answer the others' count alone. Its error is the context's.
func (c *Clock) Follow(ctx context.Context, date Date) error {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, askFor)
		said, roundTrip, err := date(asking)
		cancel()
		if err == nil {
			c.Heard(Word{apiServer, said.Add(time.Second / 2)}, roundTrip) // no further off than half a second, and half the round trip
		} else if ctx.Err() == nil {
			c.cfg.Log.Debug("the API server does not say what time it is", obs.KeyError, err)
		}
		_ = loop.Pause(ctx, askEvery)
	}
	return ctx.Err()
}
