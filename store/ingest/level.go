package ingest

import (
	"fmt"
	"slices"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Levelled is an event that sets the level (format number) of the stored records. It is the newest level that every
// replica can read. Records of kinds above the level (model.LevelOf) are deleted from the store, and all others are
// stored.
type Levelled struct {
	Level uint32
	// Below reports that this build reads only levels below the stored level. Stored records of unknown kinds are then
	// deleted, except those that refuse requests. Without these records, proxies would admit the requests.
	Below bool
}

func (Levelled) event() {}

// Level sets the level of stored records. Before the first call the level is model.Level. Level must be called before
// Gained, and after each change of the level. It does not block. A later call replaces a call that Run has not
// processed yet.
func (l *Loop) Level(e Levelled) { l.box.Put(input{level: &e}) }

// Stored returns the level at which all records are written. 0 means that this process does not lead, has not compared
// the store yet, or still has to write something.
func (l *Loop) Stored() uint32 { return l.stored.Load() }

// setLevel sets the level. If the level changes while this process leads, the whole store is compared again: at once,
// or after the comparison or write in progress.
func (s *State) setLevel(e Levelled) []Effect {
	if s.writes.level == e {
		return nil
	}
	s.writes.level = e
	switch s.phase {
	case ready:
		return s.startComparison(false)
	case loading, writing:
		s.altered = true
	case idle:
	}
	return nil
}

// storedLevel returns the level if the store was compared at that level and no write is pending; 0 otherwise.
func (s *State) storedLevel() uint32 {
	if s.phase != ready || !s.writes.idle() || len(s.others.restore) > 0 || s.altered {
		return 0
	}
	return s.writes.level.Level
}

// dropSkippable schedules the deletion of stored records of unknown kinds that refuse no requests. It does so only if
// the stored level is above the levels of this build (Levelled.Below) and the Contents (counts and hashes) of the store
// are known.
func (s *State) dropSkippable(paths []string) {
	if !s.writes.level.Below || !s.stored.contents.Known() {
		return
	}
	s.stored.dropUnknown(paths)
	for _, path := range paths {
		s.others.restore[path] = kv.Value{Path: path}
	}
}

// aboveLevel returns a problem for each object whose record is not stored because its kind is above the level. The
// problems are in no order.
func (w *writes) aboveLevel(source func(model.Key) object.ID) (all []object.Problem) {
	if !slices.ContainsFunc(model.Kinds(), func(k model.Kind) bool { return model.LevelOf(k) > w.level.Level }) {
		return nil
	}
	for key := range w.wanted.records {
		if level := model.LevelOf(key.Kind); level > w.level.Level {
			all = append(all, object.Problem{ID: source(key), Code: problem.Pending, Severity: problem.Warning,
				Message: fmt.Sprintf("the object takes effect once every replica reads level %d: replicas of an older version "+
					"read level %d only", level, w.level.Level)})
		}
	}
	return all
}
