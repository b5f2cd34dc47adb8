package changes

import (
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/kv"
)

// Commits remembers the commit times of the last 256 recorded revisions, to measure the latency from commit to ACK. An
// ACK more than a minute after the commit comes from a proxy that has just connected, so Since ignores older revisions.
// The zero value is ready for use. Safe for concurrent use.
type Commits struct {
	mu    sync.Mutex // no other lock is taken under it
	order []int64
	seen  map[int64]time.Time
}

const (
	maxCommits = 256
	oldCommit  = time.Minute
)

// Saw records a revision and its commit time. Further calls for the same revision do nothing.
func (c *Commits) Saw(revision int64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[int64]time.Time{}
	}
	if _, known := c.seen[revision]; known {
		return
	}
	if len(c.order) == maxCommits {
		delete(c.seen, c.order[0])
		c.order = append(c.order[:0], c.order[1:]...)
	}
	c.order = append(c.order, revision)
	c.seen[revision] = at
}

// Since returns the time since a revision was committed. It is negative if the commit time is in the future. If the
// revision is unknown, or is at least a minute old, Since returns false and the duration has no meaning.
func (c *Commits) Since(revision int64) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.seen[revision]
	passed := time.Since(at)
	return passed, ok && passed < oldCommit
}

// Written remembers the newest 256 commits of this process, for tools that measure from outside. The zero value is
// ready for use. Safe for concurrent use.
type Written struct {
	mu  sync.Mutex // no other lock is taken under it
	all []inspect.Commit
}

// Add records that a batch was committed now, at a revision. The argument event is the time of the batch's oldest
// event. For a batch of at most 2,048 records, Add also stores the keys of the records. Add does not retain batch.
func (w *Written) Add(revision int64, event time.Time, batch kv.Batch) {
	c := inspect.Commit{Revision: revision, Event: event, Committed: time.Now(), Puts: len(batch.Puts), Deletes: len(batch.Deletes)}
	if c.Puts+c.Deletes <= maxNamed {
		for _, r := range batch.Puts {
			c.Records = append(c.Records, r.Meta().Key)
		}
		c.Records = append(c.Records, batch.Deletes...)
	}
	w.add(c)
}

// maxNamed is the largest number of records in a batch whose keys are remembered. Larger batches occur at the start of
// a control plane or of a leader.
const maxNamed = 2048

func (w *Written) add(c inspect.Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == maxCommits {
		w.all = append(w.all[:0], w.all[1:]...)
	}
	w.all = append(w.all, c)
}

// List returns the remembered commits, oldest first. It returns nil if there are no commits. The caller owns the list,
// but must not change its Records.
func (w *Written) List() []inspect.Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}
