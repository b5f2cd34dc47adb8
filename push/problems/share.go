// Package problems sends the problems with objects that replicas find during planning and building to the leader. Each
// replica writes a leased, bounded list to etcd. The leader reads all lists, and reports each problem once.
//
// Owns: this replica's list in etcd (replica-problems/); on the leader, the merged content of all lists.  Reads: all
// replicas' lists.  Never: searches for problems itself; reports on proxies.
package problems

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// folder is the folder of the lists in etcd. Its name differs from the package's, because mirrors watch a folder
// "problems/" (kv.Families).
const folder = "replica-problems/"

// These constants limit the writes of a list.
const (
	lease     = time.Minute     // life of a list after its replica has ended
	writeTime = 5 * time.Second // maximum duration of one write
)

// Config contains the settings of a replica's Loop.
type Config struct {
	Name string // name of the replica, unique among the running replicas
	// Find returns the current problems. It may cost as much as building all configuration. One goroutine calls it.
	Find func() []model.Problem
	// Revision returns the revision of the newest complete plan. While the revision is unchanged, Find is called again
	// only after a failed write or a lost lease. One goroutine calls it.
	Revision func() int64
	// Every is the minimum time between two calls of Find. 0 means one second. It must not be negative.
	Every time.Duration
	// Max is the maximum pause between two calls of Find (Loop.pause). It is also the time before the first call, which
	// may build all configuration, so that a started replica first serves its proxies. 0 means one minute. It must not
	// be negative.
	Max time.Duration
	Log *slog.Logger // nil: slog.Default()
}

// Loop writes the problems of one replica to etcd. If this replica cannot reach etcd, the written list stays in etcd
// until its lease of one minute expires.
type Loop struct {
	cfg   Config
	path  string // path of this process's list
	blobs *kv.Leased
	wrote []byte // the list in etcd; nil: no list
	at    int64  // result of Revision before the last call of Find; -1: Find must be called
}

// New returns the Loop of a replica. Find and Revision of cfg are required. The caller starts the Loop with Run.
func New(cfg Config) *Loop {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	if cfg.Max == 0 {
		cfg.Max = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	// The path is unique, because the list of a killed process with the same name stays until its lease expires.
	return &Loop{cfg: cfg, path: folder + cfg.Name + "-" + rand.Text()[:8], at: -1}
}

// Run keeps the list in store up to date until ctx ends, and then tries to delete the list for at most one second. It
// first writes after Config.Max. Failed writes are logged and repeated, so the result is always nil. Run may be
// called once.
func (l *Loop) Run(ctx context.Context, store *kv.Store) error {
	l.blobs = store.Leased(lease)
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	next := time.Now().Add(l.cfg.Max)
	defer l.blobs.End() // the list ends with the process
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.blobs.Lost():
			l.blobs.Drop()
			l.wrote, l.at = nil, -1
		case now := <-tick.C:
			if now.Before(next) || l.cfg.Revision() == l.at {
				continue
			}
			pause, err := l.findAndWrite(ctx)
			if next = time.Now().Add(pause); err != nil && ctx.Err() == nil {
				l.at = -1
				l.cfg.Log.Warn("problems that this replica found with objects cannot be reported to the leader; trying again",
					obs.KeyError, err)
			}
		}
	}
}

// pause returns the time until Find may be called again. In it, finding the problems uses at most 2 % of one processor,
// and writing the list at most 32 KiB per second, unless the maximum pause is reached first.
func (l *Loop) pause(took time.Duration, written int) time.Duration {
	return min(max(49*took, time.Duration(written)*time.Second/(32<<10)), l.cfg.Max)
}

// findAndWrite finds the problems, and writes the list if it has changed. An empty list is deleted with its lease. The
// result is the time until the next call. After an error it is Config.Max.
func (l *Loop) findAndWrite(ctx context.Context) (pause time.Duration, err error) {
	revision, began := l.cfg.Revision(), time.Now()
	found := listOf(l.cfg.Find())
	took := time.Since(began)
	raw, err := found.encode()
	if err != nil {
		return l.cfg.Max, fmt.Errorf("encode %d problems: %w", len(found.Problems), err)
	}
	l.at = revision
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	switch {
	case len(found.Problems)+found.More == 0:
		l.wrote, raw = nil, nil
		err = l.blobs.Release(ctx)
	case bytes.Equal(raw, l.wrote):
		raw = nil
	default:
		if err = l.blobs.Put(ctx, l.path, raw); err == nil {
			l.wrote = raw
		}
	}
	if err != nil {
		return l.cfg.Max, err
	}
	return l.pause(took, len(raw)), nil
}
