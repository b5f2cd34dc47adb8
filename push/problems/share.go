// Package problems reports to the leader the problems with objects that replicas find while they plan and build: each replica writes a leased,
// bounded list into etcd, and the leader reads all lists, and takes each problem once.
//
// Owns: this replica's list in replica-problems/; at the leader what the lists say.  Reads: the lists there, etcd through store/kv.  Never:
// looks for problems itself; says anything about proxies.
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

// folder is where the lists are. It is not named after the package: mirrors would watch it (kv.Families).
const folder = "replica-problems/"

const (
	lease     = time.Minute // a list ends so long after the replica that wrote it
	writeTime = 5 * time.Second
)

// Config is what a replica's Loop is made of.
type Config struct {
	Name string // of the replica, in the fleet
	// Find lists what is wrong now. It may take as long as building everything, and is called by one goroutine.
	Find func() []model.Problem
	// Revision is what the plan is complete at; while it stays, Find is not called again.
	Revision func() int64
	// Every is the least time between two calls of Find; 0: a minute. Finding is work beside the serving of proxies.
	Every time.Duration
	Log   *slog.Logger // nil: slog's default
}

// Loop shares the problems of one replica. While etcd is away what was written stands for as long as its lease.
type Loop struct {
	cfg   Config
	path  string // of this process's list
	blobs *kv.Leased
	wrote []byte // of it; nil: nothing
	at    int64  // the revision that was looked at
}

// New makes the loop of a replica.
func New(cfg Config) *Loop {
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	// What a process of the same name wrote before it was killed stands until its lease ends.
	return &Loop{cfg: cfg, path: folder + cfg.Name + "-" + rand.Text()[:8], at: -1}
}

// Run shares until the context ends; then the list is taken away. There is never an error: what cannot be written is tried again, and logged.
func (l *Loop) Run(ctx context.Context, store *kv.Store) error {
	l.blobs = store.Leased(lease)
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	defer l.blobs.End() // what this process found is nobody's business any more
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.blobs.Lost():
			l.blobs.Drop()
			l.wrote, l.at = nil, -1
		case <-tick.C:
			if err := l.look(ctx); err != nil && ctx.Err() == nil {
				l.at = -1
				l.cfg.Log.Warn("problems that this replica found with objects cannot be reported to the leader; trying again", obs.KeyError, err)
			}
		}
	}
}

// look finds what is wrong, where the plan is another one, and writes the list where it is. An empty one is taken away with its lease.
func (l *Loop) look(ctx context.Context) error {
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
