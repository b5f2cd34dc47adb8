package ingest

import (
	"context"
	"maps"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// release asks Run to let go exactly these losses.
type release struct {
	losses []object.Loss
	done   chan bool
}

// Held is the objects whose records the shrink guard keeps in the store, in no order; while this process does not lead, none.
func (l *Loop) Held() []object.Loss {
	if p := l.held.Load(); p != nil {
		return *p
	}
	return nil
}

// Everything says whether no record would be left.
func (l *Loop) Everything() bool { return l.allHeld.Load() }

// Release lets the records of exactly these losses go that the guard keeps; false: it keeps others, or ctx has ended, and nothing
// was let go.
func (l *Loop) Release(ctx context.Context, losses []object.Loss) bool {
	r := release{losses, make(chan bool, 1)}
	select {
	case l.releases <- r:
		return <-r.done
	case <-ctx.Done():
		return false
	}
}

// losses are the objects of the records that the guard keeps, as losses.
func (s *State) losses() []object.Loss {
	var all []object.Loss
	for id := range s.heldObjects() {
		all = append(all, object.Loss{ID: id})
	}
	return all
}

// heldObjects are the objects of the records that the guard keeps.
func (s *State) heldObjects() map[object.ID]bool {
	ids := make(map[object.ID]bool, len(s.held))
	for key := range s.held {
		ids[s.sourceOf(key)] = true
	}
	return ids
}

// release has the records deleted that the guard keeps, if they are those of exactly these objects.
func (s *State) release(losses []object.Loss) (effects []Effect, ok bool) {
	if s.phase != ready && s.phase != writing {
		return nil, false
	}
	given := make(map[object.ID]bool, len(losses))
	for _, l := range losses {
		given[l.ID] = l.Version == ""
	}
	if len(losses) == 0 || len(given) != len(losses) || !maps.Equal(given, s.heldObjects()) {
		return nil, false
	}
	gone := make(map[model.Key]bool, len(s.held))
	for key := range s.held {
		gone[key] = true
		delete(s.withheld, key)
	}
	s.unguard()
	s.enqueue(gone, s.heard)
	return append(s.flush(), s.seal()...), true
}

// unguard ends what the shrink guard keeps.
func (s *State) unguard() {
	clear(s.held)
	s.guarded = ""
}
