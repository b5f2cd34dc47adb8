package main

import (
	"context"
	"log/slog"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// cutOff is a candidate's look at leaders that do not read the cluster. A leader that is cut off from the API server alone keeps its lease in etcd: where a
// candidate reaches that API server, the candidate ends its term. What it knows is of its own clock: only whether something has changed counts.
type cutOff struct {
	elector *lead.Elector
	until   func() time.Time            // up to when the cluster was read, as etcd says (asof); zero: nobody has read it
	reaches func(context.Context) error // nil: this process can list what is read
	log     *slog.Logger
	after   time.Duration // a leader that has said nothing for so long is cut off: one that reads the cluster says so about once a minute
	every   time.Duration // how often it is looked at

	epoch   kv.Epoch  // the leader's; zero: nobody leads, or this process does
	read    time.Time // what until said last
	since   time.Time // of the last change of either
	reached int       // looks in a row at which this process reached the API server while the leader did not
	ended   int       // terms that this process has ended since the cluster was read last
}

const (
	cutOffAfter  = 5 * time.Minute
	cutOffAtMost = 2 * time.Hour
	cutOffEvery  = 30 * time.Second
	// cutOffLooks is how many looks in a row decide: an API server that was away for all and is back has told the leader something by then, at the latest by the
	// bookmark that comes once a minute.
	cutOffLooks = 6
)

// silent says whether the leader has said nothing of the cluster for so long that it may be cut off. Each time that another leader has not read it either that is
// twice as long: where nobody can read everything, leadership does not go round.
func (c *cutOff) silent(now time.Time, epoch kv.Epoch, until time.Time) bool {
	if !until.Equal(c.read) {
		c.read, c.since, c.ended = until, now, 0
	}
	if epoch != c.epoch {
		c.epoch, c.since = epoch, now
	}
	return epoch != (kv.Epoch{}) && !until.IsZero() && now.Sub(c.since) >= min(c.after<<min(c.ended, 10), max(c.after, cutOffAtMost))
}

// look looks once.
func (c *cutOff) look(ctx context.Context) {
	var epoch kv.Epoch
	if _, leading := c.elector.Epoch(); !leading {
		_, epoch, _ = c.elector.Leader(ctx) // none where etcd does not answer
	}
	if !c.silent(time.Now(), epoch, c.until()) || c.reaches(ctx) != nil {
		c.reached = 0
		return
	}
	if c.reached++; c.reached < cutOffLooks {
		return
	}
	if ended, err := c.elector.Depose(ctx, epoch); err == nil && ended {
		c.reached, c.ended = 0, c.ended+1
		c.log.Warn("the leader has heard nothing of the API server for long, and this process reaches it: the leader's term is ended", obs.KeyEpoch, epoch.Revision)
	}
}

// run looks until ctx ends: its error is the only one.
func (c *cutOff) run(ctx context.Context) error {
	for loop.Pause(ctx, c.every) == nil {
		c.look(ctx)
	}
	return ctx.Err()
}
