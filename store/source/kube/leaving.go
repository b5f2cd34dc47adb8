package kube

import (
	"context"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// leaving is deletions of configuration that wait. Where a CustomResourceDefinition is deleted the API server deletes its objects, and reports one after
// the other as if somebody had deleted it. So the API server is asked, once deletions have come to rest, whether their kinds still have a definition that
// is not being deleted.
type leaving struct {
	first, last time.Time   // of the deletions that gather
	ripe        []object.ID // that are to be asked about
	asking      bool        // an answer is awaited
}

// graces is for how many times Grace deletions gather that do not end.
const graces = 4

// gather takes down which deletions wait, and how many of them are new.
func (l *leaving) gather(at time.Time, waiting []object.ID, fresh int, grace time.Duration) {
	if l.ripe = nil; len(waiting) == 0 || l.asking {
		l.first, l.last = time.Time{}, time.Time{}
		return
	}
	if l.first.IsZero() {
		l.first, l.last = at, at
	}
	if fresh > 0 {
		l.last = at
	}
	if at.Sub(l.last) >= grace || at.Sub(l.first) >= graces*grace {
		l.ripe, l.asking = waiting, true
	}
}

// waits is for how long what waits is to wait; false: nothing does, or an answer ends it.
func (s *Source) waits(at time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leaving
	if l.last.IsZero() || l.asking {
		return 0, false
	}
	return max(min(l.last.Add(s.Grace).Sub(at), l.first.Add(graces*s.Grace).Sub(at)), time.Millisecond), true
}

// waitsForDefinition says whether an object is a deletion of which it is not known yet whether the definition of its kind goes. With the lock.
func (s *Source) waitsForDefinition(id object.ID) bool {
	if s.Grace == 0 || !wanted(id.Group) {
		return false
	}
	_, known := s.lost[id]
	emitted, now := s.get(id)
	return !known && emitted != nil && now == nil
}

// ripe takes the deletions that are to be asked about.
func (s *Source) ripe() (ids []object.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, s.leaving.ripe = s.leaving.ripe, nil
	return ids
}

// confirm asks whether the kinds of deleted objects have definitions, until the API server answers or ctx ends, and has the deletions emitted.
func (s *Source) confirm(ctx context.Context, ids []object.ID) {
	groups := map[string]bool{}
	for _, id := range ids {
		groups[id.Group] = true
	}
	for failed := false; ; failed = true {
		defined, err := s.defined(ctx, groups)
		if err == nil {
			s.confirmed(ids, defined)
			return
		}
		if !failed && ctx.Err() == nil {
			s.Log.Warn("deletions wait: the API server does not say whether their kinds still have definitions", obs.KeyObjects, len(ids), obs.KeyError, err)
		}
		if loop.Pause(ctx, time.Second) != nil {
			return
		}
	}
}

// confirmed takes the answer.
func (s *Source) confirmed(ids []object.ID, defined map[kindID]kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving.asking = false
	for _, id := range ids {
		if _, now := s.get(id); now != nil || s.of(id) == nil {
			continue
		}
		s.lost[id] = object.Deleted
		if _, is := defined[kindID{group: id.Group, kind: id.Kind}]; !is {
			s.lost[id] = object.Undefined
		}
		s.touch(id)
	}
	s.wake()
}
