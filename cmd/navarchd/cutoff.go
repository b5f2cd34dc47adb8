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

// cutOff detects a leader that does not read the cluster, and ends its term. A leader that is cut off from the API
// server, but not from etcd, keeps its lease in etcd. A candidate that reaches the API server then ends the leader's
// term. The candidate measures the leader's silence on its own clock, from the last change that it has observed. The
// clocks of the processes therefore need not agree.
type cutOff struct {
	elector *lead.Elector
	until   func() time.Time            // time up to which a leader has read the cluster, from etcd; zero: never
	reaches func(context.Context) error // returns nil if this process can list the cluster's objects
	log     *slog.Logger
	after   time.Duration // a leader that is silent for this time is cut off; a healthy leader reports about once a minute
	every   time.Duration // interval of checks

	epoch   kv.Epoch  // epoch of the leader; zero: nobody leads, or this process leads
	read    time.Time // last result of until
	since   time.Time // time of the last change of epoch or read
	reached int       // consecutive checks at which the leader was silent and this process reached the API server
	ended   int       // terms that this process has ended since the cluster was last read
}

const (
	cutOffAfter  = 5 * time.Minute
	cutOffAtMost = 2 * time.Hour
	cutOffEvery  = 30 * time.Second
	// cutOffLooks is the number of consecutive checks before a term is ended. After an outage of the API server for all
	// processes, the leader reads it again before the last of these checks, because bookmarks arrive once a minute.
	cutOffLooks = 6
)

// silent reports whether the leader has been silent for so long that it may be cut off. The required time doubles with
// each term that this process has ended since the cluster was last read. If no replica can read everything, leadership
// therefore does not change often.
func (c *cutOff) silent(now time.Time, epoch kv.Epoch, until time.Time) bool {
	if !until.Equal(c.read) {
		c.read, c.since, c.ended = until, now, 0
	}
	if epoch != c.epoch {
		c.epoch, c.since = epoch, now
	}
	return epoch != (kv.Epoch{}) && !until.IsZero() && now.Sub(c.since) >= min(c.after<<min(c.ended, 10), max(c.after, cutOffAtMost))
}

// check checks the leader once.
func (c *cutOff) check(ctx context.Context) {
	var epoch kv.Epoch
	if _, leading := c.elector.Epoch(); !leading {
		_, epoch, _ = c.elector.Leader(ctx) // no epoch if etcd does not answer
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
		c.log.Warn("the leader's term was ended: the leader has not reached the API server for long, and this process reaches it",
			obs.KeyEpoch, epoch.Revision)
	}
}

// run checks the leader until ctx ends, and returns the error of ctx.
func (c *cutOff) run(ctx context.Context) error {
	for loop.Pause(ctx, c.every) == nil {
		c.check(ctx)
	}
	return ctx.Err()
}
