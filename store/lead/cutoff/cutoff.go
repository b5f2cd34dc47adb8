// Package cutoff ends the term of a leader that cannot read the cluster, if this candidate can.
//
// Owns: when a leader counts as cut off. Reads: the election (store/lead), the time up to which the leader has read the
// cluster, and the API server. Never: writes to etcd, except that it deposes a leader.
package cutoff

import (
	"context"
	"log/slog"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// Config configures a Check. All fields are required.
type Config struct {
	Elector *lead.Elector // this process's candidate
	// Until returns the time up to which a leader has read the cluster, as etcd has it. It is zero if no leader ever
	// has.
	Until func() time.Time
	// Reaches returns nil if this process can list the cluster's objects.
	Reaches func(context.Context) error
	Log     *slog.Logger
}

// Check detects a leader that does not read the cluster, and ends its term. A leader that is cut off from the API
// server, but not from etcd, keeps its lease in etcd. A candidate that reaches the API server then ends the leader's
// term. The candidate measures the leader's silence on its own clock, from the last change that it has observed. The
// clocks of the processes therefore need not agree. A Check belongs to one goroutine.
type Check struct {
	Config
	after time.Duration // a leader that is silent for this time is cut off

	epoch   kv.Epoch  // epoch of the leader; zero: nobody leads, or this process leads
	read    time.Time // last result of Until
	since   time.Time // time of the last change of epoch or read
	reached int       // consecutive checks at which the leader was silent and this process reached the API server
	ended   int       // terms that this process has ended since the cluster was last read
}

// New makes a Check.
func New(c Config) *Check { return &Check{Config: c, after: silence} }

const (
	// silence is the time after which a leader that reports nothing is cut off. A healthy leader reports about once a
	// minute.
	silence     = 5 * time.Minute
	mostSilence = 2 * time.Hour
	interval    = 30 * time.Second // of checks
	// looks is the number of consecutive checks before a term is ended. After an outage of the API server for all
	// processes, the leader reads it again before the last of these checks, because bookmarks arrive once a minute.
	looks = 6
)

// silent reports whether the leader has been silent for so long that it may be cut off. The required time doubles with
// each term that this process has ended since the cluster was last read. If no replica can read everything, leadership
// therefore does not change often.
func (c *Check) silent(now time.Time, epoch kv.Epoch, until time.Time) bool {
	if !until.Equal(c.read) {
		c.read, c.since, c.ended = until, now, 0
	}
	if epoch != c.epoch {
		c.epoch, c.since = epoch, now
	}
	return epoch != (kv.Epoch{}) && !until.IsZero() && now.Sub(c.since) >= min(c.after<<min(c.ended, 10), mostSilence)
}

// check checks the leader once.
func (c *Check) check(ctx context.Context) {
	var epoch kv.Epoch
	if _, leading := c.Elector.Epoch(); !leading {
		_, epoch, _ = c.Elector.Leader(ctx) // no epoch if etcd does not answer
	}
	if !c.silent(time.Now(), epoch, c.Until()) || c.Reaches(ctx) != nil {
		c.reached = 0
		return
	}
	if c.reached++; c.reached < looks {
		return
	}
	if ended, err := c.Elector.Depose(ctx, epoch); err == nil && ended {
		c.reached, c.ended = 0, c.ended+1
		c.Log.Warn("the leader's term was ended: the leader has not reached the API server for long, and this process reaches it",
			obs.KeyEpoch, epoch.Revision)
	}
}

// Run checks the leader every half minute until ctx ends, and returns the error of ctx.
func (c *Check) Run(ctx context.Context) error {
	for loop.Pause(ctx, interval) == nil {
		c.check(ctx)
	}
	return ctx.Err()
}
