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
	// Every is the minimum time between two calls of Find, because Find competes with the serving of proxies. 0 means
	// one minute. It must not be negative.
	Every time.Duration
	Log   *slog.Logger // nil: slog.Default()
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
		cfg.Every = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	// The path is unique, because the list of a killed process with the same name stays until its lease expires.
	return &Loop{cfg: cfg, path: folder + cfg.Name + "-" + rand.Text()[:8], at: -1}
}

// Run keeps the list in store up to date until ctx ends, and then tries to delete the list for at most one second. It
// first writes after Config.Every. Failed writes are logged and repeated, so the result is always nil. Run may be
// called once.
func (l *Loop) Run(ctx context.Context, store *kv.Store) error {
	l.blobs = store.Leased(lease)
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	defer l.blobs.End() // the list ends with the process
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.blobs.Lost():
			l.blobs.Drop()
			l.wrote, l.at = nil, -1
		case <-tick.C:
			if err := l.findAndWrite(ctx); err != nil && ctx.Err() == nil {
				l.at = -1
				l.cfg.Log.Warn("problems that this replica found with objects cannot be reported to the leader; trying again",
					obs.KeyError, err)
			}
		}
	}
}

// findAndWrite finds the problems if the plan has changed, and writes the list if it has changed. An empty list is
// deleted with its lease.
func (l *Loop) findAndWrite(ctx context.Context) error {
	revision := l.cfg.Revision()
	if revision == l.at {
		return nil
	}
	found := listOf(l.cfg.Find())
	raw, err := found.encode()
	if err != nil {
		return fmt.Errorf("encode %d problems: %w", len(found.Problems), err)
	}
	l.at = revision
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	switch {
	case len(found.Problems)+found.More == 0:
		l.wrote = nil
		return l.blobs.Release(ctx)
	case bytes.Equal(raw, l.wrote):
		return nil
	}
	if err = l.blobs.Put(ctx, l.path, raw); err == nil {
		l.wrote = raw
	}
	return err
}
