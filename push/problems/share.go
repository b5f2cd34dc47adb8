// Package problems reports the problems with objects that replicas find while they plan and build to the leader. Each
// replica writes a leased, bounded list into etcd. The leader reads all lists, and reports each problem once.
//
// Owns: this replica's list in replica-problems/; at the leader the content of all lists.  Reads: the lists there, etcd
// through store/kv.  Never: looks for problems itself; reports on proxies.
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

// Times of writes.
const (
	lease     = time.Minute     // a list expires so long after the replica that wrote it ended
	writeTime = 5 * time.Second // limit of one write
)

// Config holds the settings of a replica's Loop.
type Config struct {
	Name string // of the replica, in the fleet
	// Find returns the current problems. It may cost as much as building all configuration, and is called by one
	// goroutine.
	Find func() []model.Problem
	// Revision returns the revision of the complete plan. Find is not called again while it is unchanged.
	Revision func() int64
	// Every is the least time between two calls of Find; 0: a minute. Find competes with the serving of proxies.
	Every time.Duration
	Log   *slog.Logger // nil: slog's default
}

// Loop writes the problems of one replica. While etcd is away, the written list stays until its lease expires.
type Loop struct {
	cfg   Config
	path  string // of this process's list
	blobs *kv.Leased
	wrote []byte // content of the list; nil: it is not written
	at    int64  // revision of the last call of Find; -1: it is to be called
}

// New returns the Loop of a replica.
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

// Run writes the list until the context ends, and then deletes it. It always returns nil: a write that fails is logged
// and repeated.
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
