// Package level decides the level of stored configuration (model.Level), which is the number of its format. It is the
// highest level that every replica reads. Kinds and fields of a newer build take effect when the last replica runs that
// build. They are withdrawn before a replica of an older build serves again.
//
// Owns: level/current, which only the leader writes.
// Reads: shard/member.
// Never: raises the level above the level of a replica that joins meanwhile (the transaction fails if any record
// changed); lowers the level before the newer content is removed from the store.
//
// Configuration that only a newer build can read is stored once every replica can read it. Replicas state in their
// member records the newest level that they read. The leader writes the lowest of these levels to level/current, in a
// transaction that fails if the record of a replica changed meanwhile. A replica compares the level in the transaction
// by which it becomes ready. If the stored level is newer, the replica is not ready and admits no stream. The leader
// then removes the content that needs the stored level, and lowers the level. After a change of the level the ingester
// compares the whole store with the sources. Records of closing kinds (store/model) belong to no level, and are stored
// at once. Replicas that do not know such a kind admit no proxy that the record covers.
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

// Current is the stored level.
type Current struct {
	Level    uint32 // 0: no level is stored
	Revision int64  // etcd's revision of the value; 0: no level is stored
}

// Read reads the level from the store. The result is zero if no level is stored. Errors: the store cannot be read, or
// the value is invalid. With an error the result must not be used.
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

// Lowest returns the newest level that the leader and all replicas of a fleet read. leader is the newest level that the
// leader itself reads. An empty fleet gives this level.
func Lowest(leader uint32, fleet []member.Record) uint32 {
	least := leader
	for _, r := range fleet {
		least = min(least, r.Level)
	}
	return least
}

// Config configures Lead. Current may be zero; the other fields are required. Lead calls the functions in its
// goroutine.
type Config struct {
	Store   *kv.Store
	Reads   uint32  // the newest level that the leader's build reads
	Current Current // result of Read at the beginning of the term
	// Use starts to rewrite the stored content for a level. It is called for each change, but not for the level of
	// Current.First, with which the term begins.
	Use  func(Use)
	Used func() uint32 // level of the stored content; 0: the content is being written
	Log  *slog.Logger
}

// Use is the level in which stored content is written.
type Use struct {
	Level uint32
	Below bool // the stored level is above Level, because the leader's build does not read the stored level
}

// First returns the level at the start of the term of a leader whose build reads levels up to reads. A store without a
// level counts as level 1, because a build without levels wrote it.
func (c Current) First(reads uint32) Use {
	return Use{min(max(c.Level, 1), reads), c.Level > reads}
}

// every is the pause between two checks whether the stored content has reached a lower level.
const every = 100 * time.Millisecond

// Lead maintains the level for one epoch. It returns an error that wraps kv.ErrDeposed if a write of the level finds
// that another process leads. It returns ctx's error when ctx ends, and an error if the replicas cannot be followed.
// Other failed reads and writes of the level are logged and repeated. Lowering waits until Used returns the lower
// level.
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
	stale    bool // Current may differ from the stored level
}

// step moves the level towards its target. pending reports whether another step is needed even if the fleet does not
// change.
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
	target := Lowest(l.Reads, l.fleet.Members)
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
	case errors.Is(err, kv.ErrConflict): // a replica has written its record: the next fleet follows
		l.stale = true
		return true, nil
	case err != nil:
		l.Log.Warn("the level was not written, trying again", slog.Any("error", err))
		l.stale = true
		return true, nil
	}
	l.Log.Info("level of stored configuration changed", slog.Uint64("level", uint64(target)), slog.Uint64("before", uint64(l.Current.Level)))
	l.Current = Current{target, revision}
	l.notify(target)
	return false, nil
}

// notify calls Use, except with the argument of the last call.
func (l *leader) notify(level uint32) {
	if use := (Use{level, l.Current.Level > l.Reads}); use != l.notified {
		l.notified = use
		l.Use(use)
	}
}
