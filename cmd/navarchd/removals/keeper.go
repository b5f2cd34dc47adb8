// Package removals publishes the held removals and lets operators accept them. A held removal consists of objects that
// disappeared without a deletion. Their records stay until an operator accepts the removal, or its time is over. If
// there is an API server, a SubjectAccessReview for the verb accept on removals.navarch.io decides which operators may
// accept.
//
// Owns: removals/ in etcd, which the leader writes for every process and the next leader.
// Reads: the held removals of store/ingest; tokens of operators, for the time of a request.
// Never: decides what is held; accepts a removal at a process that does not lead.
package removals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/removal"
)

// Paths of the removals in etcd.
const (
	folder = "removals/"
	path   = folder + "holds"
)

// formerPaths are paths of older builds, which a leader deletes.
var formerPaths = []string{folder + "held", folder + "decisions", folder + "losses"}

// Limits on the stored value. At most mostHolds removals are stored, the oldest ones. Together they have at most
// mostNames names of objects.
const (
	mostHolds = 1000
	mostNames = 2000
)

// Loop is the part of ingest.Loop that a Keeper uses.
type Loop interface {
	// Removals returns the held removals, oldest first. The list is read-only. The result is false if this process does
	// not lead under the epoch, or has not yet compared everything with the store.
	Removals(epoch kv.Epoch) ([]removal.Hold, bool)
	// Accept removes the objects of the held removal with this ID, and returns the removal. The result is false if no
	// held removal has the ID, or if ctx ended first.
	Accept(ctx context.Context, id string) (removal.Hold, bool)
}

// Keeper publishes the held removals of a leading process, and accepts the removals whose time is over. All exported
// fields are required.
type Keeper struct {
	Store *kv.Store
	Loop  Loop
	Name  string // of this process
	Log   *slog.Logger

	leads atomic.Bool
}

// every is the interval at which a leader publishes its held removals.
const every = 250 * time.Millisecond

// stored is the value at path.
type stored struct {
	Leader string         `json:"leader"`
	Held   []removal.Hold `json:"held"`
}

// Recall returns the removals that the previous leader held, as stored in etcd. The result is nil if etcd has no value,
// or if the value does not decode, which is logged. Errors are those of kv.Store.Blobs.
func (k *Keeper) Recall(ctx context.Context) ([]removal.Hold, error) {
	blobs, _, err := k.Store.Blobs(ctx, folder, 0)
	if err != nil {
		return nil, err
	}
	s, err := parse(kv.Folder{Blobs: blobs})
	if err != nil {
		k.Log.Warn("the removals that the leader before held cannot be read: they are judged again", obs.KeyError, err)
	}
	return s.Held, nil
}

// parse decodes the stored value.
func parse(f kv.Folder) (s stored, err error) {
	for _, blob := range f.Blobs {
		if blob.Path == path {
			err = json.Unmarshal(blob.Raw, &s)
		}
	}
	if err != nil {
		return stored{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Lead publishes held removals in etcd and as a metric, and accepts the removals whose time is over, for one term of
// this process. An Acceptor accepts removals only while Lead runs. Lead returns when ctx ends, or when etcd reports
// that another process leads. Failed writes are logged and repeated.
func (k *Keeper) Lead(ctx context.Context, epoch kv.Epoch) {
	k.leads.Store(true)
	defer k.leads.Store(false)
	defer obs.RemovalsHeld.Reset()
	var written []byte
	logged := map[string]bool{}
	for ctx.Err() == nil {
		if held, known := k.Loop.Removals(epoch); known {
			k.report(held, logged)
			raw, err := k.write(ctx, epoch, held, written)
			switch {
			case errors.Is(err, kv.ErrDeposed):
				return
			case err == nil:
				written = raw
				k.end(ctx, held)
			case ctx.Err() == nil:
				k.Log.Warn("the removals that are held cannot be written to etcd; trying again", obs.KeyError, err)
				_ = loop.Pause(ctx, time.Second)
			}
		}
		_ = loop.Pause(ctx, every)
	}
}

// report sets the metric, and logs each removal whose ID was not in the previous list.
func (k *Keeper) report(held []removal.Hold, logged map[string]bool) {
	obs.RemovalsHeld.Reset()
	now := map[string]bool{}
	for _, h := range held {
		for kind, n := range h.Kinds {
			obs.RemovalsHeld.WithLabelValues(kind).Add(float64(n))
		}
		if now[h.ID] = true; !logged[h.ID] {
			k.Log.Warn("a removal is held: navarchctl removals lists it, and accepts it", obs.KeyRemoval, h.ID, obs.KeyObjects, h.Count,
				obs.KeyKinds, h.KindCounts(), "namespace", h.Namespace, obs.KeyReason, h.Why.String())
		}
	}
	clear(logged)
	for id := range now {
		logged[id] = true
	}
}

// write stores the held removals if their encoding differs from the argument written. This argument is the value in
// etcd, or nil if that value is unknown. Without an error, the result is the new value in etcd.
func (k *Keeper) write(ctx context.Context, epoch kv.Epoch, held []removal.Hold, written []byte) ([]byte, error) {
	raw, err := json.Marshal(stored{k.Name, bounded(held)})
	if err != nil || bytes.Equal(raw, written) {
		return raw, err
	}
	change := kv.BlobChange{Put: []kv.Blob{{Path: path, Raw: raw}}}
	if written == nil {
		change.Delete = formerPaths
	}
	_, err = k.Store.ChangeFenced(ctx, epoch, change)
	return raw, err
}

// bounded returns a copy of the list within mostHolds and mostNames. Removals and names beyond these limits are not
// published, but the objects stay held.
func bounded(held []removal.Hold) []removal.Hold {
	all := append([]removal.Hold{}, held[:min(len(held), mostHolds)]...)
	for i := range all {
		all[i].Names = all[i].Names[:min(len(all[i].Names), max(mostNames/len(all), 1))]
	}
	return all
}

// end accepts the removals whose time is over.
func (k *Keeper) end(ctx context.Context, held []removal.Hold) {
	for _, h := range held {
		if h.Ends.IsZero() || time.Now().Before(h.Ends) {
			continue
		}
		if done, ok := k.Loop.Accept(ctx, h.ID); ok {
			k.Log.Warn("a removal was held for its time: the objects are removed",
				obs.KeyRemoval, done.ID, obs.KeyObjects, done.Count, obs.KeyKinds, done.KindCounts())
		}
	}
}

// Known is a process's copy of the removals that the leader holds. The zero value is empty and ready for use. Safe for
// concurrent use.
type Known struct {
	mu    sync.Mutex // a leaf lock; guards known
	known stored
}

// Follow updates n from etcd until ctx ends, and then returns nil. While etcd does not answer, the last state stays. If
// a stored value does not decode, this is logged and the last state stays. An error means that the store cannot follow
// the folder, which is a fault of this build.
func (n *Known) Follow(ctx context.Context, store *kv.Store, log *slog.Logger) error {
	states, err := store.Follow(ctx, folder)
	if err != nil {
		return err
	}
	for state := range states {
		s, err := parse(state)
		if err != nil {
			log.Warn("the removals that the leader holds cannot be read: those known before stay listed", obs.KeyError, err)
			continue
		}
		n.mu.Lock()
		n.known = s
		n.mu.Unlock()
	}
	return nil
}

// List is the JSON of the page /debug/removals.
type List struct {
	Leader string         `json:"leader"` // name of the process that holds the removals; empty: unknown
	Held   []removal.Hold `json:"held"`   // oldest first, at most 1000; Names may be shortened
}

// Leader returns the name of the process that leads, or led last; empty: unknown.
func (n *Known) Leader() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known.Leader
}

// Of returns the removals in the namespaces for which the function sees returns true. List.Held is never nil. For
// removals that cover all namespaces, sees is called with the empty namespace. The function sees must not call Of. The
// caller owns the list, but not the maps and slices in its elements.
func (n *Known) Of(sees func(namespace string) bool) List {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := List{Leader: n.known.Leader, Held: []removal.Hold{}}
	for _, h := range n.known.Held {
		if sees(h.Namespace) {
			l.Held = append(l.Held, h)
		}
	}
	return l
}
