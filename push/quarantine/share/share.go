// Package share exchanges the reports of push/quarantine between replicas. Each replica writes its reports to etcd as
// one leased list, and reads the lists of the other replicas.
//
// Owns: this replica's list in etcd (refusals/). Reads: the lists of all replicas. Never: decides which versions are
// withheld.
package share

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// folder is the folder of the lists. Mirrors do not watch it, because its name sorts after records/.
const folder = "refusals/"

// These constants limit the writes of the list.
const (
	gather     = 50 * time.Millisecond // delay of a write, so that reports of one moment are written together
	writeEvery = time.Second           // minimum time between writes
	retryWrite = 5 * time.Second       // pause after a failed write
	writeTime  = 5 * time.Second       // maximum duration of one write
	pruneEvery = time.Minute           // interval in which old reports are removed
)

// Loop shares the reports of one replica. While etcd is unreachable, reports that were read before stay in effect.
type Loop struct {
	path string // path of this process's list
	log  *slog.Logger

	mu      sync.Mutex // guards mine; no other lock is acquired while it is held
	mine    list
	changed chan struct{} // capacity 1; has a value when mine may differ from the written list
}

// New returns the Loop of a replica with a name. If log is nil, the Loop logs to slog.Default(). New starts no
// goroutine.
func New(name string, log *slog.Logger) *Loop {
	if log == nil {
		log = slog.Default()
	}
	// The list of an earlier process with the same name stays until its lease ends.
	return &Loop{path: folder + name + "-" + rand.Text()[:8], log: log, changed: make(chan struct{}, 1)}
}

// Add adds a report to this replica's list, which Run writes. A report beyond the bounds displaces an older report. An
// invalid report is ignored, and so is a report that repeats a recent one. Add is for quarantine.Config.Share. It is
// safe for concurrent use, and never blocks on etcd.
func (l *Loop) Add(r quarantine.Report) {
	l.mu.Lock()
	added := l.mine.add(r)
	l.mu.Unlock()
	if added {
		l.mark()
	}
}

// mark wakes the loop to store its list. It never blocks.
func (l *Loop) mark() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Run writes the list to store and passes the reports of other replicas to q. When ctx ends, it returns nil. The list
// stays in etcd until its lease ends, because the reports stay true. Failed writes are logged and repeated. Lists that
// cannot be read are logged. An error means that store does not know the folder, which is a fault of this build. Run
// may be called once.
func (l *Loop) Run(ctx context.Context, store *kv.Store, q *quarantine.Quarantine) error {
	folders, err := store.Follow(ctx, folder)
	if err != nil {
		return err
	}
	others := known{}
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	blobs := store.Leased(quarantine.DefaultKeep)
	var due <-chan time.Time // time of the next write; nil: there is nothing to write
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case f, ok := <-folders:
			if !ok {
				return nil // ctx ends
			}
			reports, problems := others.read(f, l.path)
			q.Merge(reports)
			for _, problem := range problems {
				l.log.Warn("another replica's list of refusals cannot be read", obs.KeyError, problem)
			}
		case <-l.changed:
			if due == nil {
				due = time.After(max(gather, writeEvery-time.Since(last)))
			}
		case now := <-tick.C:
			l.prune(now, q)
		case <-blobs.Lost():
			blobs.Drop()
			l.mark()
		case <-due:
			due, last = nil, time.Now()
			if err := l.write(ctx, blobs); err != nil && ctx.Err() == nil {
				l.log.Warn("this replica's list of refusals cannot be written to etcd for the other replicas; trying again", obs.KeyError, err)
				due = time.After(retryWrite)
			}
		}
	}
}

// prune removes old reports of versions that the quarantine has forgotten from the replica's own list.
func (l *Loop) prune(now time.Time, q *quarantine.Quarantine) {
	l.mu.Lock()
	changed := l.mine.prune(now, q.Remembers)
	l.mu.Unlock()
	if changed {
		l.mark()
	}
}

// write writes the list. An empty list is deleted with its lease.
func (l *Loop) write(ctx context.Context, blobs *kv.Leased) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	l.mu.Lock()
	count := len(l.mine.all)
	raw, err := l.mine.encode()
	l.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("encode %d reports: %w", count, err)
	case count == 0:
		return blobs.Release(ctx)
	}
	return blobs.Put(ctx, l.path, raw)
}
