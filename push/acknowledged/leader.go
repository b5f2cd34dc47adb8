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

// Collector reads the answers of all replicas for the leader, and writes the leader's question. Make it with
// NewCollector. Now is safe for concurrent use. Calls of Run must not overlap, and calls of Await must not overlap.
type Collector struct {
	log   *slog.Logger
	now   atomic.Pointer[Answers]
	asked question
}

// Answers are the answers of all replicas at one time. They are immutable, so their users must not change them.
type Answers struct {
	// revisions has the revision of each replica's answer to the present leader, by the replica's name. If several
	// processes have the same name, it is the newest revision.
	revisions map[string]int64
	// Refused lists the objects because of which proxies refuse configuration, each once, sorted by object. It includes
	// the refusals in answers to earlier leaders.
	Refused []Refusal
}

// NewCollector returns a Collector without answers. A nil log means slog.Default().
func NewCollector(log *slog.Logger) *Collector {
	return &Collector{log: cmp.Or(log, slog.Default())}
}

// Now returns the current answers. It returns nil before Run has read the answers, and after Run has ended.
func (c *Collector) Now() *Answers { return c.now.Load() }

// Acknowledged returns the newest revision that all of the named replicas have acknowledged. The revision is 0 if a
// replica has not answered the present leader, and math.MaxInt64 without replicas. The result waiting names the
// replicas that have not acknowledged the revision upTo, in the order of replicas. It is nil if all have acknowledged
// upTo. The receiver must not be nil.
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

// Run follows the answers in store until ctx ends. When ctx ends, Run drops the answers and returns nil. The argument
// epoch is the epoch of the present leader. Only revisions in answers to this leader's questions count. An error means
// that store cannot follow the folder, which is a fault of this build.
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

// read returns the answers in a folder. It uses revisions only of answers to the leader of the epoch, and refusals of
// all answers. An answer that does not decode is logged and left out.
func (c *Collector) read(f kv.Folder, epoch int64) *Answers {
	out, refused := &Answers{revisions: map[string]int64{}}, map[model.Key]string{}
	for _, blob := range f.Blobs {
		a, objects, err := decode(blob.Raw)
		if err != nil {
			c.log.Warn("a replica's answer about acknowledged revisions cannot be read",
				obs.KeyError, fmt.Errorf("%s: %w", blob.Path, err))
			continue
		}
		if a.Epoch == epoch {
			out.revisions[a.Replica] = max(out.revisions[a.Replica], a.Revision)
		}
		// Refusals do not depend on the question, so those in answers to earlier leaders count, too.
		for _, r := range objects {
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

// Await writes a revision as the leader's question. It does not wait for answers. If this Collector has already written
// this or a newer revision in the epoch, Await writes nothing. The error is that of kv.Store.ChangeFenced, such as
// kv.ErrDeposed, a timeout after 5 s, or the end of ctx.
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

// Withdraw deletes the question of an earlier leader, so that replicas delete their answers. A leader that asks no
// questions calls Withdraw. If there is no question, Withdraw writes nothing. It logs failed writes and repeats them.
// It returns nil when the question is deleted, another leader has begun a later epoch, or ctx ends. A nil log means
// slog.Default(). An error means that store cannot follow the folder, which is a fault of this build.
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
			cmp.Or(log, slog.Default()).Warn("an earlier leader's question about acknowledged revisions cannot be deleted,"+
				" so replicas go on answering it; trying again", obs.KeyError, err)
			retry = time.After(time.Second)
		}
	}
}

// withdraw tries to delete the question once.
func withdraw(ctx context.Context, store *kv.Store, epoch kv.Epoch) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	_, err := store.ChangeFenced(ctx, epoch, kv.BlobChange{Delete: []string{path}})
	return err
}
