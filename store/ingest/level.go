package ingest

import (
	"fmt"
	"slices"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Levelled is an event: records of kinds above a level (model.LevelOf) are not stored from now on, records up to it
// are.
type Levelled struct {
	Level uint32
	// Below: the store may have a level above the one that this build reads, which is Level. Stored records of unknown
	// kinds are deleted. Policies that refuse something stay, since without them proxies would admit it.
	Below bool
}

func (Levelled) event() {}

// Level sets the level of stored records. It is called before Gained, and as often as the level changes.
func (l *Loop) Level(e Levelled) { l.box.Put(input{level: &e}) }

// Stored returns the level for which everything is written; 0: something is still to be written.
func (l *Loop) Stored() uint32 { return l.stored.Load() }

// setLevel sets the level, and has the store compared with it as a whole, which happens once in an upgrade.
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

// storedLevel returns the level for which nothing waits to be written; 0: something waits.
func (s *State) storedLevel() uint32 {
	if s.phase != ready || !s.writes.idle() || len(s.others.restore) > 0 || s.altered {
		return 0
	}
	return s.writes.level.Level
}

// dropSkippable has stored records of unknown kinds that refuse nothing deleted, if the store is to have the level that
// this build reads.
func (s *State) dropSkippable(paths []string) {
	if !s.writes.level.Below || !s.stored.contents.Known() {
		return
	}
	s.stored.dropUnknown(paths)
	for _, path := range paths {
		s.others.restore[path] = kv.Value{Path: path}
	}
}

// aboveLevel returns a problem for each object whose record is not stored because of its level.
func (w *writes) aboveLevel(source func(model.Key) object.ID) (all []object.Problem) {
	if !slices.ContainsFunc(model.Kinds(), func(k model.Kind) bool { return model.LevelOf(k) > w.level.Level }) {
		return nil
	}
	for key := range w.wanted.records {
		if level := model.LevelOf(key.Kind); level > w.level.Level {
			all = append(all, object.Problem{ID: source(key), Code: problem.Pending, Severity: problem.Warning,
				Message: fmt.Sprintf("it takes effect once every replica reads level %d: there are replicas of an older version, "+
					"which read level %d", level, w.level.Level)})
		}
	}
	return all
}
