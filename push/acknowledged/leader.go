package acknowledged

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Collector is the leader's end: what the replicas answer. Its methods may be called from any goroutine, Await from one.
type Collector struct {
	log   *slog.Logger
	now   atomic.Pointer[Answers]
	asked question
}

// Answers are those of all replicas to one leader. They never change.
type Answers struct {
	revisions map[string]int64 // by replica; of several processes of one name the newest answer
	// Refused is each object because of which proxies refuse something, once, with the first text, in order of objects.
	Refused []Refusal
}

// NewCollector makes one that knows nothing; log nil is slog's default.
func NewCollector(log *slog.Logger) *Collector {
	return &Collector{log: cmp.Or(log, slog.Default())}
}

// Now is what the replicas have answered; nil: that is not known yet.
func (c *Collector) Now() *Answers { return c.now.Load() }

// Acknowledged is the revision up to which all of these replicas have; where there are none, everything is. waiting are those that have not
// answered up to a revision.
func (a *Answers) Acknowledged(replicas []string, upTo int64) (revision int64, waiting []string) {
	revision = math.MaxInt64
	for _, name := range replicas {
		reached := a.revisions[name]
		if revision = min(revision, reached); reached < upTo {
			waiting = append(waiting, name)
		}
	}
	return revision, waiting
}

// Run follows the answers to a leader until the context ends, and forgets them then.
// An error is of a folder without a name of the fleet's, which would be a mistake of this build.
func (c *Collector) Run(ctx context.Context, store *kv.Store, epoch kv.Epoch) error {
	folders, err := store.Follow(ctx, folder)
	if err != nil {
		return err
	}
	defer c.now.Store(nil)
	for f := range folders {
		c.now.Store(c.read(f, epoch.Revision))
	}
	return nil
}

func (c *Collector) read(f kv.Folder, epoch int64) *Answers {
	out, refused := &Answers{revisions: map[string]int64{}}, map[model.Key]string{}
	for _, blob := range f.Blobs {
		a, objects, err := decode(blob.Raw)
		if err != nil {
			c.log.Warn("a replica's answer about acknowledged revisions cannot be read", obs.KeyError, fmt.Errorf("%s: %w", blob.Path, err))
			continue
		}
		if a.Epoch == epoch {
			out.revisions[a.Replica] = max(out.revisions[a.Replica], a.Revision)
		}
		for _, r := range objects { // also those said to the leader before: the refusals are the same
			if _, known := refused[r.Object]; !known {
				refused[r.Object] = r.Text
			}
		}
	}
	for object, text := range refused {
		out.Refused = append(out.Refused, Refusal{object, text})
	}
	slices.SortFunc(out.Refused, func(a, b Refusal) int { return a.Object.Compare(b.Object) })
	return out
}

// Await asks the replicas about a revision, where that is newer than what was asked under this epoch. The errors are those of
// kv.Store.ChangeFenced.
func (c *Collector) Await(ctx context.Context, store *kv.Store, epoch kv.Epoch, revision int64) error {
	q := question{epoch.Revision, revision}
	if c.asked.Epoch == q.Epoch && c.asked.Revision >= revision {
		return nil
	}
	raw, err := json.Marshal(q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if _, err = store.ChangeFenced(ctx, epoch, kv.BlobChange{Put: []kv.Blob{{Path: path, Raw: raw}}}); err == nil {
		c.asked = q
	}
	return err
}

// Withdraw takes away what leaders have asked before, so that replicas end their answers: for a leader that asks nothing. Where nothing was
// asked, it writes nothing. It tries until that is done, the epoch leads no more, or the context ends; log nil is slog's default. The error is a
// store that is closed.
func Withdraw(ctx context.Context, store *kv.Store, epoch kv.Epoch, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	folders, err := store.Follow(ctx, awaited)
	if err != nil {
		return err
	}
	var f kv.Folder
	var retry <-chan time.Time
	for open := true; ; {
		select {
		case f, open = <-folders:
		case <-retry:
		}
		if !open || len(f.Blobs) == 0 {
			return nil
		}
		if err = withdraw(ctx, store, epoch); errors.Is(err, kv.ErrDeposed) {
			return nil
		}
		if retry = nil; err != nil {
			cmp.Or(log, slog.Default()).Warn("an earlier leader's question about acknowledged revisions cannot be deleted, so replicas go on answering it; trying again", obs.KeyError, err)
			retry = time.After(time.Second)
		}
	}
}

func withdraw(ctx context.Context, store *kv.Store, epoch kv.Epoch) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	_, err := store.ChangeFenced(ctx, epoch, kv.BlobChange{Delete: []string{path}})
	return err
}
