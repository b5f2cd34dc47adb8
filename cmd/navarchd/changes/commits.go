package changes

import (
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/kv"
)

// Commits remembers when the newest revisions were committed, for the latency from a commit to its ACK. It is bounded,
// and forgets what is old: a late ACK of an old revision comes from a proxy that joined, and measures nothing.
type Commits struct {
	mu    sync.Mutex // a leaf
	order []int64
	seen  map[int64]time.Time
}

const (
	maxCommits = 256
	oldCommit  = time.Minute
)

// Saw takes note of a revision, committed (as far as is known) at a time.
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

// Since is how long ago a revision was committed; false where that is not known or long ago.
func (c *Commits) Since(revision int64) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.seen[revision]
	passed := time.Since(at)
	return passed, ok && passed < oldCommit
}

// Written remembers the newest commits of this process, for who measures from outside.
type Written struct {
	mu  sync.Mutex // a leaf
	all []inspect.Commit
}

// Add takes a commit: when its oldest event was, and what was written.
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

// maxNamed is the size of a batch whose records are remembered by name; larger ones are those of a start, or of a new leader.
const maxNamed = 2048

func (w *Written) add(c inspect.Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == maxCommits {
		w.all = append(w.all[:0], w.all[1:]...)
	}
	w.all = append(w.all, c)
}

// List is the newest commits, oldest first.
func (w *Written) List() []inspect.Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}
