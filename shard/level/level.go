// Package level decides which level of stored configuration the fleet uses (model.Level): the highest that every replica reads. So kinds and
// fields that only a newer build knows take effect when the last replica runs that build, and are withdrawn before a replica of an older build
// serves again.
//
// Owns: level/current, written by the leader alone.  Reads: shard/member.  Never: raises the level while a replica joins that does not
// read it (one transaction compares all of them); lowers it before what needs it is gone from the store.
//
// Source: issue 12, item 13.
package level

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/store/kv"
)

// Current is the level as it is stored.
type Current struct {
	Level    uint32 // 0: none is stored
	Revision int64  // etcd's, of the value; 0: there is none
}

// Read asks the store for the level. An error: it cannot be asked, or the value is no level.
func Read(ctx context.Context, store *kv.Store) (Current, error) {
	blobs, _, err := store.Blobs(ctx, folder, 0)
	if err != nil {
		return Current{}, err
	}
	for _, blob := range blobs {
		if blob.Path == member.LevelPath {
			level, err := member.ParseLevel(blob.Raw)
			return Current{level, blob.Revision}, err
		}
	}
	return Current{}, nil
}

var folder = member.LevelPath[:strings.IndexByte(member.LevelPath, '/')+1]

// Of is the level that a fleet should have: the lowest that one of its replicas, or the leader itself, reads.
func Of(leader uint32, fleet []member.Record) uint32 {
	least := leader
	for _, r := range fleet {
		least = min(least, r.Level)
	}
	return least
}

// Config of the loop that keeps the level.
type Config struct {
	Store   *kv.Store
	Reads   uint32        // the newest level that the leader's build reads
	Current Current       // what Read said when the term began
	Use     func(Use)     // has what is stored brought to a level, soon
	Used    func() uint32 // the level that what is stored has; 0: it is being written
	Log     *slog.Logger
}

// Use is how to bring what is stored to a level.
type Use struct {
	Level uint32
	Below bool // what is stored may have a level above what the leader's build reads
}

// First is how a leader whose build reads a level begins, with what is stored. A store without a level is one of builds that had none.
func (c Current) First(reads uint32) Use {
	return Use{min(max(c.Level, 1), reads), c.Level > reads}
}

// every is how often the loop looks whether what is stored has been brought to a lower level.
const every = 100 * time.Millisecond

// Lead keeps the level for one epoch. It returns kv.ErrDeposed when another leads, else an error when ctx ends or the fleet cannot be
// followed.
func Lead(ctx context.Context, epoch kv.Epoch, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fleets, err := member.Follow(ctx, cfg.Store, cfg.Log)
	if err != nil {
		return err
	}
	l := leader{Config: cfg, epoch: epoch, notified: cfg.Current.First(cfg.Reads)}
	var lowering <-chan time.Time
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case fleet, open := <-fleets:
			if !open {
				continue // ctx ends
			}
			l.fleet = fleet
		case <-lowering:
		}
		pending, err := l.step(ctx)
		if err != nil {
			return err
		}
		if lowering = nil; pending {
			lowering = tick.C
		}
	}
}

type leader struct {
	Config
	epoch    kv.Epoch
	fleet    member.Fleet
	notified Use
	stale    bool // Current may not be what is stored
}

// step brings the level nearer to what it should be; pending: it is not there yet.
func (l *leader) step(ctx context.Context) (pending bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if l.stale {
		if l.Current, err = Read(ctx, l.Store); err != nil {
			l.Log.Warn("the level cannot be read, trying again", slog.Any("error", err))
			return true, nil
		}
		l.stale = false
	}
	target := Of(l.Reads, l.fleet.Members)
	if target <= l.Current.Level {
		if l.notify(target); target == l.Current.Level {
			return false, nil
		}
		if l.Used() != target {
			return true, nil
		}
	}
	revision, err := l.Store.ChangeFenced(ctx, l.epoch, kv.BlobChange{
		If:        map[string]int64{member.LevelPath: l.Current.Revision},
		Unchanged: map[string]int64{member.Folder: l.fleet.Revision},
		Put:       []kv.Blob{{Path: member.LevelPath, Raw: member.LevelValue(target)}},
	})
	switch {
	case errors.Is(err, kv.ErrDeposed):
		return false, fmt.Errorf("write level %d: %w", target, err)
	case errors.Is(err, kv.ErrConflict): // a replica has written its record: the fleet as it is now comes
		l.stale = true
		return true, nil
	case err != nil:
		l.Log.Warn("the level was not written, trying again", slog.Any("error", err))
		l.stale = true
		return true, nil
	}
	l.Log.Info("level of the stored configuration", slog.Uint64("level", uint64(target)), slog.Uint64("before", uint64(l.Current.Level)))
	l.Current = Current{target, revision}
	l.notify(target)
	return false, nil
}

// notify says to which level what is stored is to be brought, once.
func (l *leader) notify(level uint32) {
	if use := (Use{level, l.Current.Level > l.Reads}); use != l.notified {
		l.notified = use
		l.Use(use)
	}
}
