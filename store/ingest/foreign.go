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

// The events and effects of mending what others than the leader changed in the store, by accident or with foreign tools (issue 12, item
// 12). Nothing of it goes by the shrink guard: no object changed.
type (
	// Foreign: records were changed at a revision, and not by this leader.
	Foreign struct {
		Epoch    kv.Epoch
		Revision int64
		Values   []kv.Value
	}
	// Altered: the head was changed by somebody else, or etcd has forgotten what this leader has not read.
	Altered struct{ Epoch kv.Epoch }
	// Recall: read records as they were before a revision, since no object says what they are to be.
	Recall struct {
		Epoch    kv.Epoch
		Revision int64
		Paths    []string
	}
	// Recalled answers Recall, as far as etcd still has them.
	Recalled struct {
		Epoch  kv.Epoch
		Values []kv.Value
	}
)

func (Foreign) event()  {}
func (Altered) event()  {}
func (Recall) effect()  {}
func (Recalled) event() {}

// stored is what this leader has stored under a path; the zero Hash: nothing.
func (s *State) stored(path string) model.Hash {
	if key, err := model.ParsePath(path); err == nil {
		return s.have[key]
	}
	return s.unknown[path]
}

// foreign has what others changed written again, or removed. Where that is no record that an object says, it is read as it was before.
func (s *State) foreign(e Foreign) []Effect {
	again := map[model.Key]bool{}
	var recall []string
	for _, v := range e.Values {
		was := s.stored(v.Path)
		key, err := v.Key()
		flies, flying := s.flying[key]
		switch {
		case v.Hash() == was && !flying || flying && v.Hash() == flies: // it is what it is to be
		case flying && flies != model.Hash{} && s.want[key] == nil && !s.queue.waitsFor(key): // a Secret that is being encrypted again, and that no object says
			s.altered = true
		case was == model.Hash{} && (err != nil || s.refused[key].Message != ""):
			s.restore[v.Path] = kv.Value{Path: v.Path}
		case err != nil || s.stands(key):
			recall = append(recall, v.Path)
		default:
			s.dirty[key], again[key] = true, true
		}
	}
	s.queue.add(again, time.Time{})
	if len(recall) == 0 {
		return nil
	}
	return []Effect{Recall{Epoch: s.epoch, Revision: e.Revision, Paths: recall}}
}

// mend takes what is known of changes that others made.
func (s *State) mend(event Event) (effects []Effect) {
	if s.phase != ready && s.phase != writing {
		return nil // what is stored is compared as a whole
	}
	switch e := event.(type) {
	case Foreign:
		if e.Epoch == s.epoch {
			effects = s.foreign(e)
		}
	case Recalled:
		if e.Epoch == s.epoch {
			for _, v := range e.Values {
				if v.Hash() == s.stored(v.Path) {
					s.restore[v.Path] = v
				}
			}
		}
	case Altered:
		s.altered = s.altered || e.Epoch == s.epoch
	}
	if s.altered && s.phase == ready {
		return s.start(true)
	}
	return append(effects, s.flush()...)
}

// forget drops what is known of changes that others made.
func (s *State) forget() {
	clear(s.dirty)
	clear(s.restore)
	s.contents, s.unknown, s.altered = kv.Contents{}, nil, false
}

// stands says of a record that it stays stored though no object says it: the object cannot be understood, it vanished with too many
// others, or its record is too large or not sealed yet.
func (s *State) stands(key model.Key) bool {
	_, stored := s.have[key]
	if _, flying := s.flying[key]; !stored || flying {
		return false
	}
	return s.awaitingSeal[key] != nil || s.refused[key].Message != "" || s.want[key] == nil && !s.queue.waitsFor(key)
}

// restores takes what is to be put back, for the next batch: only what is as this leader has it stored, and not in the batch for another
// reason.
func (s *State) restores(batch map[model.Key]model.Hash) (values []kv.Value) {
	for _, path := range slices.Sorted(maps.Keys(s.restore)) {
		v := s.restore[path]
		key, err := v.Key()
		if _, in := batch[key]; v.Hash() == s.stored(path) && (err != nil || !in) {
			values = append(values, v)
		}
	}
	clear(s.restore)
	return values
}

// following has what others change followed from a load on, until stop.
func (l *Loop) following(ctx context.Context, e Loaded, results chan<- Event) (stop func()) {
	if !l.state.leading || e.Epoch != l.state.epoch {
		return func() {}
	}
	ctx, stop = context.WithCancel(ctx)
	go l.follow(ctx, e.At, e.Epoch, results)
	return stop
}

// follow takes in, until ctx ends, what others change of the records from a load on.
func (l *Loop) follow(ctx context.Context, from kv.Position, epoch kv.Epoch, results chan<- Event) {
	for ctx.Err() == nil {
		err := l.followOnce(ctx, &from, epoch, results)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errAltered) || errors.Is(err, kv.ErrCompacted) || errors.Is(err, kv.ErrRegressed) || errors.Is(err, kv.ErrClusterChanged) {
			l.changes.Warn("changes that others made to stored records may have been missed: comparing everything again", "", obs.KeyEpoch, epoch.Revision, obs.KeyError, err)
			send(ctx, results, Altered{epoch})
			return
		}
		l.changes.Warn("the watch on the stored records failed; trying again. Until then, changes that others make to them are not put back", "", obs.KeyError, err)
		_ = loop.Pause(ctx, l.Retry)
	}
}

// differing logs which stored records are not what the head says. What the head says of kinds that this build does not know stands,
// whatever is stored: nobody here could tell which of the two is right.
func (l *Loop) differing(state *kv.State) {
	for _, kind := range state.Contents.Differ(state.Said) {
		said, stored := state.Said.Kind(kind).Count, state.Contents.Kind(kind).Count
		_, known := model.ParseKind(kind)
		if !known {
			state.Contents.Take(kind, state.Said)
		}
		l.Log.Warn("the stored records of a kind differ from what the last leader wrote: somebody else changed them", obs.KeyKind, kind,
			obs.KeySaid, said, obs.KeyRecords, stored, obs.KeyKnown, known)
	}
}

// errAltered: somebody wrote the head who is not this leader.
var errAltered = errors.New("the head is not this leader's")

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
			l.changes.Warn("somebody other than the leader changed stored records: they are put back", "", obs.KeyRevision, u.Revision,
				obs.KeyRecords, count, obs.KeyKinds, kinds, obs.KeyNames, names)
			send(ctx, results, Foreign{epoch, u.Revision, u.Values})
		}
		from.Revision = u.Revision
	}
	return errors.New("the watch was closed")
}

func send(ctx context.Context, results chan<- Event, event Event) {
	select {
	case results <- event:
	case <-ctx.Done():
	}
}

// describe names some records for a line of the log: how many, their kinds, and the first of them.
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

// recall reads records as they were, until it can or etcd has forgotten them.
func (l *Loop) recall(ctx context.Context, e Recall) Event {
	for ctx.Err() == nil {
		values, err := l.Store.Before(ctx, e.Paths, e.Revision)
		if err == nil {
			return Recalled{e.Epoch, values}
		}
		if errors.Is(err, kv.ErrCompacted) {
			count, kinds, names := describe(e.Paths)
			l.Log.Error("stored records that somebody else changed cannot be put back: no object says what they should be, and etcd has compacted the revision before the change",
				obs.KeyRecords, count, obs.KeyKinds, kinds, obs.KeyNames, names, obs.KeyError, err)
			break
		}
		_ = loop.Pause(ctx, l.Retry)
	}
	return Recalled{Epoch: e.Epoch}
}
