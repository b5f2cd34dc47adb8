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

// ringFolder holds one blob, the present ring.
const (
	ringFolder = "ring/"
	ringPath   = ringFolder + "current"
)

// LeaderConfig of the loop that writes the ring.
type LeaderConfig struct {
	Store *kv.Store
	Wrote func(next *ring.Ring, moved int) // after a ring was written; nil: nobody wants to know
	// Alone is the one replica that there can be when Lead begins, for its process has just started the etcd (embedded, in a
	// locked directory); empty: there may be others. Records that are there and shards of others are of processes that have
	// ended: they are taken away at once, instead of when their leases end. Who comes later is a replica like any.
	Alone string
	Log   *slog.Logger // nil: slog's default
}

// Lead writes the ring for one epoch: it watches the fleet, decides, and writes under the epoch's fence. It returns
// kv.ErrDeposed when another leads, else when ctx ends. A new epoch starts from what is stored.
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

// leader is the state of Lead; its goroutine alone touches it.
type leader struct {
	cfg      LeaderConfig
	epoch    kv.Epoch
	assigner assigner
	fleet    []member.Record
	current  *ring.Ring
	revision int64 // of the stored ring; 0: there is none
	counted  bool  // the fleet was read
	known    bool  // the ring was
}

// clear removes the records of replicas that cannot be there when Lead begins, and returns the others.
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

// read takes over the stored ring. One that does not decode is as none: the next one replaces it.
func (l *leader) read(folder kv.Folder) {
	var found kv.Blob
	for _, blob := range folder.Blobs {
		if blob.Path == ringPath {
			found = blob
		}
	}
	if l.known && found.Revision == l.revision || found.Revision != 0 && found.Revision < l.revision {
		return // what this leader wrote itself, or older
	}
	l.known, l.revision, l.current = true, found.Revision, nil
	if found.Revision == 0 {
		return
	}
	r, err := ring.Decode(found.Raw)
	if err != nil {
		l.cfg.Log.Error("the stored ring cannot be read, making another", slog.Any("error", err))
		return
	}
	l.current = r
}

// act decides and writes. The error is one that ends the term.
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
	case ctx.Err() != nil: // the term ends: whether it was written does not matter to anybody here
		return wake, nil
	case err != nil:
		// Another state, or etcd is away: what is stored comes by the watch.
		l.cfg.Log.Warn("the ring was not written, trying again", slog.Uint64("version", next.Version()), slog.Any("error", err))
		return now.Add(time.Second), nil
	}
	moved := ring.Moved(l.current, next)
	level := slog.LevelInfo
	if moved == 0 && slices.EqualFunc(l.current.Members(), next.Members(), func(a, b ring.Member) bool { return a.Name == b.Name }) {
		level = slog.LevelDebug // weights, as of one that takes its share in steps
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
