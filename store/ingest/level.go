package ingest

import (
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Levelled: records of kinds above a level (model.LevelOf) are not to be stored from now on, those up to it are (issue 12, item 13).
type Levelled struct {
	Level uint32
	// Below: what is stored may have a level above what this build reads, and Level is what it reads: what is stored of kinds that
	// it does not know is removed. Policies that refuse something stay: without them proxies would admit it.
	Below bool
}

func (Levelled) event() {}

// Level has records stored up to a level from now on; it is called before Gained, and then as often as the level changes.
func (l *Loop) Level(e Levelled) { l.box.Put(input{level: &e}) }

// Stored is the level for which everything is written, 0 while something is still to be written.
func (l *Loop) Stored() uint32 { return l.stored.Load() }

// levelled takes a level. What is stored is compared with it as a whole: that happens once in an upgrade.
func (s *State) levelled(e Levelled) []Effect {
	if s.level == e {
		return nil
	}
	s.level = e
	switch s.phase {
	case ready:
		return s.start(false)
	case loading, writing:
		s.altered = true
	case idle:
	}
	return nil
}

// wanted is the record that is to be stored under a key, nil where there is to be none.
func (s *State) wanted(key model.Key) model.Record {
	if model.LevelOf(key.Kind) > s.level.Level {
		return nil
	}
	return s.want[key]
}

// storedLevel is the level for which nothing waits to be written.
func (s *State) storedLevel() uint32 {
	if s.phase != ready || !s.queue.empty() || len(s.restore) > 0 || s.complete || s.altered {
		return 0
	}
	return s.level.Level
}

// drop has removed what is stored of kinds that this build does not know and that refuse nothing, if what is stored is to have the level
// that it reads.
func (s *State) drop(skippable []string) {
	if !s.level.Below || !s.contents.Known() {
		return
	}
	s.contents = s.contents.Clone()
	s.unknown = maps.Clone(s.unknown)
	for _, path := range skippable {
		s.contents.Replace(path, s.unknown[path], model.Hash{})
		delete(s.unknown, path)
		s.restore[path] = kv.Value{Path: path}
	}
}

// aboveLevel is a problem for each object whose record the level keeps out of the store.
func (s *State) aboveLevel() (all []object.Problem) {
	if !slices.ContainsFunc(model.Kinds(), func(k model.Kind) bool { return model.LevelOf(k) > s.level.Level }) {
		return nil
	}
	for key := range s.want {
		if level := model.LevelOf(key.Kind); level > s.level.Level {
			all = append(all, object.Problem{ID: s.sourceOf(key), Code: problem.Pending, Severity: problem.Warning,
				Message: fmt.Sprintf("it takes effect once every replica reads level %d: there are replicas of an older version, which read level %d", level, s.level.Level)})
		}
	}
	return all
}
