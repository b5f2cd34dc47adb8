package place

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv"
)

// ringFolder is a folder of the store. Its only blob is the present ring, at ringPath.
const (
	ringFolder = "ring/"
	ringPath   = ringFolder + "current"
)

// LeaderConfig configures Lead. Store is required. The ring assigns shards (groups of proxies) to replicas.
type LeaderConfig struct {
	Store *kv.Store
	// Wrote is called after each write of a ring, with the number of moved shards. It may be nil.
	Wrote func(next *ring.Ring, moved int)
	// Alone is the name of the only replica that can run when Lead begins, because its process has just started the
	// embedded etcd. If Alone is set, Lead removes the records of all other replicas, and reassigns their shards
	// without waiting for the end of their leases. Replicas that come later are not affected. If Alone is empty, other
	// replicas may run.
	Alone string
	Log   *slog.Logger // nil: slog's default
}

// Lead writes the ring during one epoch (the term of one leader). After the epoch, the store rejects the writes of
// Lead. Lead starts from the stored ring, and adapts the ring to the replicas and their loads. A failed write of the
// ring is logged and repeated. Lead returns an error in these cases:
//
//   - ctx ends: the error of ctx.
//   - A write shows that another process leads: an error that wraps kv.ErrDeposed.
//   - With LeaderConfig.Alone, the removal of records fails.
//   - A folder of the store cannot be followed, because of a programming error (kv.Store.Follow).
func Lead(ctx context.Context, epoch kv.Epoch, cfg LeaderConfig) error {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fleets, err := member.Follow(ctx, cfg.Store, cfg.Log)
	if err != nil {
		return err
	}
	rings, err := cfg.Store.Follow(ctx, ringFolder)
	if err != nil {
		return err
	}
	l := &leader{cfg: cfg, epoch: epoch, assigner: assigner{alone: cfg.Alone != ""}}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case fleet, open := <-fleets:
			if open {
				if l.fleet, err = l.clear(ctx, fleet.Members); err != nil {
					return err
				}
				l.counted = true
			}
		case folder, open := <-rings:
			if open {
				l.read(folder)
			}
		case <-timer.C:
		}
		if ctx.Err() != nil || !l.counted || !l.known {
			continue
		}
		wake, err := l.act(ctx, time.Now())
		if err != nil {
			return err
		}
		timer.Reset(max(time.Until(wake), 10*time.Millisecond))
	}
}

// leader is the state of Lead, owned by its goroutine.
type leader struct {
	cfg      LeaderConfig
	epoch    kv.Epoch
	assigner assigner
	fleet    []member.Record
	current  *ring.Ring
	revision int64 // revision of the stored ring; 0: no ring is stored
	counted  bool  // the records of all replicas were read
	known    bool  // the stored ring was read
}

// clear removes the records of all replicas except LeaderConfig.Alone when Lead begins. It returns the records that
// remain. If Alone is empty, it removes nothing.
func (l *leader) clear(ctx context.Context, fleet []member.Record) (there []member.Record, err error) {
	if l.cfg.Alone == "" || l.counted {
		return fleet, nil
	}
	var ended []string
	for _, record := range fleet {
		if record.Name == l.cfg.Alone {
			there = append(there, record)
		} else {
			ended = append(ended, member.Folder+record.Name)
		}
	}
	if len(ended) == 0 {
		return there, nil
	}
	writing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := l.cfg.Store.ChangeFenced(writing, l.epoch, kv.BlobChange{Delete: ended}); err != nil {
		return nil, fmt.Errorf("remove the records of processes that have ended: %w", err)
	}
	return there, nil
}

// read adopts the stored ring. A ring that does not decode counts as absent, so the next ring replaces it.
func (l *leader) read(folder kv.Folder) {
	var found kv.Blob
	for _, blob := range folder.Blobs {
		if blob.Path == ringPath {
			found = blob
		}
	}
	if l.known && found.Revision == l.revision || found.Revision != 0 && found.Revision < l.revision {
		return // the stored ring is already known, or older than the known ring
	}
	l.known, l.revision, l.current = true, found.Revision, nil
	if found.Revision == 0 {
		return
	}
	r, err := ring.Decode(found.Raw)
	if err != nil {
		l.cfg.Log.Error("the stored ring cannot be read; a new ring replaces it", slog.Any("error", err))
		return
	}
	l.current = r
}

// act computes the next ring, and writes it if it differs from the present one. The result wake is the time of the next
// call. Every error wraps kv.ErrDeposed, and means that the epoch has ended.
func (l *leader) act(ctx context.Context, now time.Time) (wake time.Time, err error) {
	next, wake := l.assigner.step(now, l.fleet, l.current)
	if next == l.current {
		return wake, nil
	}
	writing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	revision, err := l.cfg.Store.ChangeFenced(writing, l.epoch, kv.BlobChange{
		If: map[string]int64{ringPath: l.revision}, Put: []kv.Blob{{Path: ringPath, Raw: next.Encode()}},
	})
	switch {
	case errors.Is(err, kv.ErrDeposed):
		return wake, fmt.Errorf("write ring %d: %w", next.Version(), err)
	case ctx.Err() != nil: // Lead ends, so the outcome does not matter
		return wake, nil
	case err != nil:
		// After a conflict, or when etcd is back, the watch delivers the stored ring.
		l.cfg.Log.Warn("the ring was not written, trying again", slog.Uint64("version", next.Version()), slog.Any("error", err))
		return now.Add(time.Second), nil
	}
	moved := ring.Moved(l.current, next)
	level := slog.LevelInfo
	if moved == 0 && slices.EqualFunc(l.current.Members(), next.Members(), func(a, b ring.Member) bool { return a.Name == b.Name }) {
		level = slog.LevelDebug // no shard moved, for example when the weight of a replica grows
	}
	l.cfg.Log.Log(ctx, level, "ring", slog.Uint64("version", next.Version()), slog.Int("replicas", len(next.Members())),
		slog.Int("moved", moved), slog.Int("split", len(next.SplitNamespaces())), slog.Int64("epoch", l.epoch.Revision))
	l.current, l.revision = next, revision
	l.assigner.written(now)
	if l.cfg.Wrote != nil {
		l.cfg.Wrote(next, moved)
	}
	return wake, nil
}
