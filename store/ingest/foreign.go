package ingest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// The events and effects for repairing stored records that other writers changed, by accident or with foreign tools.
// Repairs are never held back as removals of objects are, since no object has changed.
type (
	// Foreign lists the records that another writer changed in one revision. Values has their new values. A Value
	// without content means that the record was deleted.
	Foreign struct {
		Epoch    kv.Epoch
		Revision int64
		Values   []kv.Value
	}
	// Altered reports that changes of other writers cannot be repaired one by one. Another writer has changed the head
	// (the record that each batch writes), etcd has compacted revisions that this leader has not read, or the store was
	// restored or replaced.
	Altered struct{ Epoch kv.Epoch }
	// Recall requests the values that the records at Paths had before Revision. At present no object determines these
	// records.
	Recall struct {
		Epoch    kv.Epoch
		Revision int64
		Paths    []string
	}
	// Recalled is the result of Recall. Values is empty if etcd has compacted the revision, or if the Loop ends.
	Recalled struct {
		Epoch  kv.Epoch
		Values []kv.Value
	}
)

func (Foreign) event()  {}
func (Altered) event()  {}
func (Recall) effect()  {}
func (Recalled) event() {}

// others repairs stored records after changes by other writers. Wanted records are written again, and the earlier
// values of other records are restored. The methods apply and recalled receive changes. The method takeRestores returns
// values for the next batch. State owns it.
type others struct {
	wanted  *wanted
	stored  *stored
	writes  *writes
	restore map[string]kv.Value // values to restore, by path; without content: to be deleted
}

// forget drops all values to restore.
func (o *others) forget() { clear(o.restore) }

// apply processes changed values. Wanted records are scheduled to be written again, and unwanted ones to be deleted.
// The first result has the paths of records whose earlier values are needed. The second result reports that the whole
// store must be compared.
func (o *others) apply(values []kv.Value) (recall []string, altered bool) {
	again := map[model.Key]bool{}
	for _, v := range values {
		was := o.stored.at(v.Path)
		key, err := v.Key()
		flies, flying := o.writes.flying[key]
		switch {
		case v.Hash() == was && !flying || flying && v.Hash() == flies: // the record has its wanted value
		case flying && flies != model.Hash{} && o.wanted.records[key] == nil && !o.writes.queue.waitsFor(key):
			altered = true // the present batch encrypts a Secret again, and no object determines that Secret
		case was == model.Hash{} && (err != nil || o.writes.refused[key] > 0):
			o.restore[v.Path] = kv.Value{Path: v.Path}
		case err != nil || o.writes.standing(key):
			recall = append(recall, v.Path)
		default:
			o.writes.again[key], again[key] = true, true
		}
	}
	o.writes.queue.add(again, time.Time{})
	return recall, altered
}

// recalled schedules recalled values to be restored if they are the values that this leader stored.
func (o *others) recalled(values []kv.Value) {
	for _, v := range values {
		if v.Hash() == o.stored.at(v.Path) {
			o.restore[v.Path] = v
		}
	}
}

// takeRestores removes all values to restore, and returns those for a batch, sorted by path. It omits records that the
// batch writes, and values that this leader did not store.
func (o *others) takeRestores(batch map[model.Key]model.Hash) (values []kv.Value) {
	for _, path := range slices.Sorted(maps.Keys(o.restore)) {
		v := o.restore[path]
		key, err := v.Key()
		if _, in := batch[key]; v.Hash() == o.stored.at(path) && (err != nil || !in) {
			values = append(values, v)
		}
	}
	clear(o.restore)
	return values
}

// mend applies an event about changes of other writers.
func (s *State) mend(event Event) (effects []Effect) {
	if !s.phase.following() {
		return nil // the store is compared as a whole
	}
	switch e := event.(type) {
	case Foreign:
		if e.Epoch == s.epoch {
			recall, altered := s.others.apply(e.Values)
			s.altered = s.altered || altered
			if len(recall) > 0 {
				effects = []Effect{Recall{Epoch: s.epoch, Revision: e.Revision, Paths: recall}}
			}
		}
	case Recalled:
		if e.Epoch == s.epoch {
			s.others.recalled(e.Values)
		}
	case Altered:
		s.altered = s.altered || e.Epoch == s.epoch
	}
	if s.altered && s.phase == ready {
		return s.startComparison(true)
	}
	return append(effects, s.flush()...)
}

// startFollowing starts to follow the changes that other writers make after a load, until stop is called. After a load
// of another term, it follows nothing.
func (l *Loop) startFollowing(ctx context.Context, e Loaded, results chan<- Event) (stop func()) {
	if !l.state.leading || e.Epoch != l.state.epoch {
		return func() {}
	}
	ctx, stop = context.WithCancel(ctx)
	go l.follow(ctx, e.At, e.Epoch, results)
	return stop
}

// follow reports the changes that other writers make after a position. It ends when ctx ends, or when it has reported
// Altered.
func (l *Loop) follow(ctx context.Context, position kv.Position, epoch kv.Epoch, results chan<- Event) {
	for ctx.Err() == nil {
		err := l.followOnce(ctx, &position, epoch, results)
		if ctx.Err() != nil {
			return
		}
		missed := func(cause error) bool { return errors.Is(err, cause) }
		if slices.ContainsFunc([]error{errAltered, kv.ErrCompacted, kv.ErrRegressed, kv.ErrClusterChanged}, missed) {
			l.changes.Warn("changes of stored records by other writers may have been missed: comparing all records again", "",
				obs.KeyEpoch, epoch.Revision, obs.KeyError, err)
			send(ctx, results, Altered{epoch})
			return
		}
		l.changes.Warn("the watch on the stored records failed, trying again: until then changes by other writers are not reverted", "",
			obs.KeyError, err)
		_ = loop.Pause(ctx, l.Retry)
	}
}

// logDiffering logs the kinds whose stored records differ from the counts and hashes in the head (state.Said). For
// kinds that this build does not know, it copies the head's counts and hashes to state.Contents.
func (l *Loop) logDiffering(state *kv.State) {
	for _, kind := range state.Contents.Differ(state.Said) {
		said, stored := state.Said.Kind(kind).Count, state.Contents.Kind(kind).Count
		_, known := model.ParseKind(kind)
		if !known {
			state.Contents.CopyKind(kind, state.Said)
		}
		l.Log.Warn("the stored records of a kind differ from those that the last leader wrote: another writer changed them", obs.KeyKind, kind,
			obs.KeySaid, said, obs.KeyRecords, stored, obs.KeyKnown, known)
	}
}

// errAltered means that another writer wrote or deleted the head.
var errAltered = errors.New("another writer wrote or deleted the head")

// followOnce follows one watch, and advances the given position to the last revision that it has processed. The error
// is the reason why the watch ended.
func (l *Loop) followOnce(ctx context.Context, from *kv.Position, epoch kv.Epoch, results chan<- Event) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for u := range l.Store.Watch(ctx, *from) {
		switch {
		case u.Err != nil:
			return u.Err
		case u.Head != nil && (u.Head.Err != nil || u.Head.Epoch != epoch.Revision):
			return errAltered
		case u.Head == nil && len(u.Values) > 0:
			paths := make([]string, len(u.Values))
			for i, v := range u.Values {
				paths[i] = v.Path
			}
			count, kinds, names := describe(paths)
			l.changes.Warn("another writer changed stored records: they are restored", "", obs.KeyRevision, u.Revision,
				obs.KeyRecords, count, obs.KeyKinds, kinds, obs.KeyNames, names)
			send(ctx, results, Foreign{epoch, u.Revision, u.Values})
		}
		from.Revision = u.Revision
	}
	return errors.New("the watch was closed")
}

// send sends an event, unless ctx ends.
func send(ctx context.Context, results chan<- Event, event Event) {
	select {
	case results <- event:
	case <-ctx.Done():
	}
}

// describe summarises records for a log line: their number, at most five kinds, and at most five paths.
func describe(paths []string) (count int, kinds, names string) {
	const most = 5
	all, first := map[string]bool{}, []string{}
	for _, path := range paths {
		kind, _, _ := strings.Cut(path, "/")
		if all[kind] = true; len(first) < most {
			first = append(first, path)
		}
	}
	sorted := slices.Sorted(maps.Keys(all))
	return len(paths), strings.Join(sorted[:min(len(sorted), most)], " "), strings.Join(first, " ")
}

// recall carries out Recall. It retries until etcd answers or ctx ends. The result is empty if etcd has compacted the
// revision, or ctx has ended.
func (l *Loop) recall(ctx context.Context, e Recall) Event {
	for ctx.Err() == nil {
		values, err := l.Store.Before(ctx, e.Paths, e.Revision)
		if err == nil {
			return Recalled{e.Epoch, values}
		}
		if errors.Is(err, kv.ErrCompacted) {
			count, kinds, names := describe(e.Paths)
			l.Log.Error("stored records that another writer changed cannot be restored and stay unchanged: no object determines them, "+
				"and etcd has compacted the revision before the change",
				obs.KeyRecords, count, obs.KeyKinds, kinds, obs.KeyNames, names, obs.KeyError, err)
			break
		}
		_ = loop.Pause(ctx, l.Retry)
	}
	return Recalled{Epoch: e.Epoch}
}
