package kube

import (
	"context"
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// leaving contains deletions of configuration that wait for a confirmation. When a CustomResourceDefinition is deleted,
// the API server deletes its objects, and reports each as an ordinary deletion. The ingester needs to distinguish these
// deletions from others. Therefore deletions wait until no further deletion has arrived for Config.Grace. After that, a
// query tells which of their kinds still have a definition that is not being deleted.
type leaving struct {
	first, last time.Time   // times of the first and the last deletion that was collected
	ripe        []object.ID // deletions to confirm by the next query
	asking      bool        // a query is in progress
}

// graces is the longest time of collection, as a multiple of Config.Grace, if deletions keep arriving.
const graces = 4

// gather updates the times of collection. The parameter waiting has all deletions that wait for a confirmation. The
// parameter fresh is the number of deletions that were marked since the last call. When the collection is over, gather
// sets ripe.
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

// waits returns the time until the collection ends. The result is false if no deletion waits, or if a query is in
// progress.
func (s *Source) waits(at time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leaving
	if l.last.IsZero() || l.asking {
		return 0, false
	}
	return max(min(l.last.Add(s.Grace).Sub(at), l.first.Add(graces*s.Grace).Sub(at)), time.Millisecond), true
}

// waitsForDefinition reports whether an object is a deletion whose reason is not known yet. The caller has locked
// Source.mu.
func (s *Source) waitsForDefinition(id object.ID) bool {
	if s.Grace == 0 || !wanted(id.Group) {
		return false
	}
	_, known := s.lost[id]
	emitted, now := s.get(id)
	return !known && emitted != nil && now == nil
}

// ripe removes and returns the deletions that the next query confirms.
func (s *Source) ripe() (ids []object.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, s.leaving.ripe = s.leaving.ripe, nil
	return ids
}

// confirm queries the definitions of the kinds of deleted objects, and marks the deletions for emission. It retries
// until the API server answers or ctx ends.
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
			s.Log.Warn("deletions wait: the API server does not say whether their kinds still have definitions",
				obs.KeyObjects, len(ids), obs.KeyError, err)
		}
		if loop.Pause(ctx, time.Second) != nil {
			return
		}
	}
}

// confirmed records the reason of each deletion: object.Deleted if the kind is still defined, otherwise
// object.Undefined.
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
