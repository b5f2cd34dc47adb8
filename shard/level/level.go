// Package level decides the level of stored configuration (model.Level), which is the number of its format. The stored
// level is the highest level that every replica can read. Kinds of objects and fields that only a newer build knows
// take effect when the last replica runs that build. They are removed from the store before a replica of an older build
// serves again.
//
// Owns: the key level/current in etcd, which only the leader writes.
// Reads: the records of the replicas (shard/member).
// Never: raises the level above the newest level that a joining replica reads (the transaction fails if a record
// changed meanwhile); lowers the level before the newer content is removed from the store.
//
// Configuration that only a newer build can read is stored once every replica can read it. Replicas state in their
// member records the newest level that they read. The leader writes the lowest of these levels to level/current, in a
// transaction that fails if the record of a replica changed meanwhile. A replica becomes ready by a transaction that
// compares the stored level with the newest level that the replica reads. If the stored level is newer, the replica is
// not ready and admits no stream. The leader then removes the content that this replica cannot read, and lowers the
// level. After each change of the level, the ingester (which writes configuration to the store) compares the whole
// store with the sources of configuration. Records of closing kinds (model.Closing) may forbid traffic. They are stored
// at once, at any level. A replica that does not know such a kind admits no new streams of the proxies to which the
// record applies.
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

// Read reads the level from the store. The result is the zero Current if no level is stored. Errors: the store cannot
// be read, or the value is invalid. With an error the result must not be used.
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

// Lowest returns the highest level that the leader and all replicas can read. The parameter leader is the newest level
// that the leader itself reads. It is the result if fleet is empty.
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
	Current Current // result of Read when this leader begins to lead
	// Use must start to rewrite the stored content for a level. Lead calls it for each change of the level. Lead does
	// not call it for the result of Current.First, the first level of this leader.
	Use  func(Use)
	Used func() uint32 // level of the stored content; 0: the content is being written
	Log  *slog.Logger
}

// Use is the level for which stored content is written.
type Use struct {
	Level uint32
	Below bool // the stored level is above Level, because the leader's build does not read the stored level
}

// First returns the level for which a new leader writes stored content at first. The parameter reads is the newest
// level that the leader's build reads. A store without a level counts as level 1, because a build without levels wrote
// it.
func (c Current) First(reads uint32) Use {
	return Use{min(max(c.Level, 1), reads), c.Level > reads}
}

// every is the time between two checks of Config.Used while the level is to be lowered.
const every = 100 * time.Millisecond

// Lead maintains the level while this process leads with the given epoch. It returns an error that wraps kv.ErrDeposed
// if a write of the level fails because another process leads. It returns the error of ctx when ctx ends, and an error
// if the records of the replicas cannot be followed. Other failed reads and writes of the level are logged and
// repeated. Before Lead lowers the stored level, it waits until Config.Used returns the lower level.
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
	stale    bool // the level in Current may differ from the stored one
}

// step changes the stored level to the highest that all replicas can read, if this is possible now. pending reports
// whether another step is needed even if no record of a replica changes.
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

// notify calls Config.Use, unless the argument equals that of the last call.
func (l *leader) notify(level uint32) {
	if use := (Use{level, l.Current.Level > l.Reads}); use != l.notified {
		l.notified = use
		l.Use(use)
	}
}
