package ingest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// writes turns differences between wanted and stored records into batches. collect and enqueue receive changed keys.
// makeBatch returns the next batch, and applyWritten updates the field stored with its outcome. At most one batch is in
// progress. The type State owns the writes.
type writes struct {
	wanted   *wanted
	stored   *stored
	sources  *sources
	level    Levelled // records of kinds up to this level are stored
	queue    *queue
	withheld map[model.Key]bool       // stored keys without an object, which may be in a document that cannot be read
	refused  map[model.Key]int        // sizes in bytes of wanted records that are too large
	again    map[model.Key]bool       // keys that other writers changed: to be written or deleted in any case
	batch    kv.Batch                 // the batch in progress
	flying   map[model.Key]model.Hash // hashes of the keys in the batch in progress, once it is stored; zero: the record is deleted
	place    kv.Place                 // position of the newest batch
	complete bool                     // a head (the key of etcd that each batch writes) has to be written even if no record differs
	paced    bool                     // batches that contain only endpoints wait for Due
	stats    Stats
}

func newWrites(w *wanted, s *stored, from *sources) *writes {
	return &writes{wanted: w, stored: s, sources: from, level: Levelled{Level: model.Level}, queue: newQueue(),
		withheld: map[model.Key]bool{}, refused: map[model.Key]int{}, again: map[model.Key]bool{}}
}

// begin prepares the comparison with the records that were loaded from the store (Loaded).
func (w *writes) begin(e Loaded, allowEmpty bool) {
	w.complete = !e.Complete || allowEmpty // the first head of a store waits for a record, unless an empty mesh is allowed
	w.place.Chain, w.place.Term = e.Place.Chain, e.Place.Term
	w.queue, w.batch, w.flying = newQueue(), kv.Batch{}, nil
	clear(w.withheld)
	clear(w.refused)
	clear(w.again)
}

// endTerm drops everything that waits to be written.
func (w *writes) endTerm() {
	w.paced, w.complete = false, false
	w.queue, w.batch, w.flying = newQueue(), kv.Batch{}, nil
	clear(w.withheld)
	clear(w.again)
}

// collect enqueues keys that changed together. If every document can be read (readable), the withheld records are
// compared too.
func (w *writes) collect(changed map[model.Key]bool, since time.Time, readable bool) {
	for key := range changed {
		delete(w.withheld, key)
		delete(w.refused, key)
	}
	if readable {
		maps.Copy(changed, w.withheld)
		clear(w.withheld)
	}
	w.enqueue(changed, since)
}

// enqueue enqueues keys that changed together, if any of them differs. It stores in the map whether each key differs.
func (w *writes) enqueue(changed map[model.Key]bool, since time.Time) {
	for key := range changed {
		changed[key] = w.differs(key)
	}
	w.queue.add(changed, since)
}

// want returns the record to store under a key, or nil if no record is to be stored.
func (w *writes) want(key model.Key) model.Record {
	if model.LevelOf(key.Kind) > w.level.Level {
		return nil
	}
	return w.wanted.records[key]
}

// differs reports whether a key has to be written or deleted after the batch in progress. It returns false for a key of
// another cluster whose source has not emitted everything. It also returns false while the private key of the record is
// not sealed, unless another writer changed the record.
func (w *writes) differs(key model.Key) bool {
	if w.sources.remotes.standing(key.Origin) {
		return false
	}
	if w.again[key] {
		return true
	}
	if w.wanted.awaitingSeal[key] != nil {
		return false
	}
	hash, is := w.stored.hashes[key]
	if next, flies := w.flying[key]; flies {
		hash, is = next, next != model.Hash{}
	}
	want := w.want(key)
	return (want != nil) != is || want != nil && want.Meta().Hash != hash
}

// standing reports whether a record stays stored although no object yields it. This is so if the object is unreadable,
// its removal is held, or its newest version is too large or not sealed yet.
func (w *writes) standing(key model.Key) bool {
	_, stored := w.stored.hashes[key]
	if _, flying := w.flying[key]; !stored || flying {
		return false
	}
	return w.wanted.awaitingSeal[key] != nil || w.refused[key] > 0 || w.wanted.records[key] == nil && !w.queue.waitsFor(key)
}

// idle reports whether no key and no head waits to be written.
func (w *writes) idle() bool { return w.queue.empty() && !w.complete }

// fill is the maximum number of records of a batch with more than one group (keys that changed together). A batch
// within this limit usually is one transaction of etcd. Changes that arrive meanwhile wait only for this transaction.
const fill = kv.MaxTxnOps - 1

// makeBatch returns the next batch. The batch has waiting keys, Secrets that were encrypted again (parameter again),
// and records that other writers changed (parameter others). The result since is the time of the oldest change in the
// batch; it is zero if no event caused the batch. The result ok is false if nothing has to be written now.
func (w *writes) makeBatch(epoch kv.Epoch, again map[model.Key]*model.Secret, others *others) (batch kv.Batch, since time.Time, ok bool) {
	forced := len(again)+len(others.restore) > 0 || w.complete
	if w.paced && w.queue.config == 0 && !forced {
		return batch, since, false
	}
	keys, since := w.nextKeys(fill - len(again))
	if len(keys) == 0 && !forced {
		return batch, since, false
	}
	w.place.Seq++
	w.batch = kv.Batch{Epoch: epoch, Place: w.place, After: w.stored.after, Stored: w.stored.contents}
	w.flying = make(map[model.Key]model.Hash, len(keys)+len(again))
	endpointsOnly := !forced
	keys = slices.AppendSeq(keys, maps.Keys(again))
	slices.SortFunc(keys, model.Key.Compare)
	for _, key := range keys {
		endpointsOnly = endpointsOnly && key.Kind.FollowsWorkloads()
		want := w.want(key)
		if r := again[key]; r != nil {
			want = r
		}
		if want == nil {
			w.batch.Deletes, w.flying[key] = append(w.batch.Deletes, key), model.Hash{}
		} else {
			w.batch.Puts, w.flying[key] = append(w.batch.Puts, want), want.Meta().Hash
		}
		delete(w.again, key)
	}
	w.batch.Was, w.batch.Restore = w.hashesBefore(), others.takeRestores(w.flying)
	w.paced = endpointsOnly && w.queue.empty()
	return w.batch, since, true
}

// hashesBefore returns the stored hashes of the keys of the batch in progress.
func (w *writes) hashesBefore() map[model.Key]model.Hash {
	was := make(map[model.Key]model.Hash, len(w.flying))
	for key := range w.flying {
		if hash, stored := w.stored.hashes[key]; stored {
			was[key] = hash
		}
	}
	return was
}

// nextKeys removes groups from the queue, and returns their keys that still differ. It stops at about the given number
// of keys, or at kv.MaxRecordBytes bytes of records. It returns at least one key if any waiting key differs. The result
// since is the time of the oldest change; it is zero if no event caused the changes.
func (w *writes) nextKeys(most int) (keys []model.Key, since time.Time) {
	for len(keys) == 0 && !w.queue.empty() {
		bytes := 0
		w.queue.take(most, func(g *group) int {
			since = earlier(since, g.since)
			for key := range g.keys {
				if !w.differs(key) {
					continue
				}
				keys = append(keys, key)
				if want := w.want(key); want != nil && len(keys) <= fill {
					bytes += proto.Size(want.Body())
				}
			}
			if bytes > kv.MaxRecordBytes {
				return 0
			}
			return most - len(keys)
		})
	}
	return keys, since
}

// takeBatch returns the batch that was in progress and has ended.
func (w *writes) takeBatch() kv.Batch {
	batch := w.batch
	w.batch, w.flying = kv.Batch{}, nil
	return batch
}

// applyWritten updates stored after a batch was written. Records that were too large become problems.
func (w *writes) applyWritten(batch kv.Batch, e Written) {
	w.stored.after, w.stored.contents, w.complete = e.After, e.Contents, false
	w.stats.Batches++
	for _, r := range batch.Puts {
		if size, refused := e.Refused[r.Meta().Key]; refused {
			w.refused[r.Meta().Key] = size
			continue
		}
		w.stored.put(r)
		w.stats.Puts++
	}
	for _, key := range batch.Deletes {
		w.stored.remove(key)
		w.stats.Deletes++
	}
}

// problems returns a problem for each record that is too large, or above the level, in no order. Such records are not
// stored.
func (w *writes) problems(source func(model.Key) object.ID) (all []object.Problem) {
	for key, size := range w.refused {
		all = append(all, object.Problem{ID: source(key), Code: problem.NotAllowed, Severity: problem.Error,
			Message: fmt.Sprintf("its record has %d bytes, at most %d fit in etcd: the stored version stays in effect", size, kv.MaxRecordBytes)})
	}
	return append(all, w.aboveLevel(source)...)
}
