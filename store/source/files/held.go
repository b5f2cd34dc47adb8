package files

import (
	"context"
	"slices"

	"navarch.io/navarch/store/object"
)

// release asks Run to let go exactly these objects.
type release struct {
	ids  []object.ID
	done chan bool
}

// Held is what the shrink guard holds, in no order. Safe for concurrent use.
func (s *Source) Held() []object.ID {
	if p := s.held.Load(); p != nil {
		return *p
	}
	return nil
}

// Everything says whether all that was told is held. Safe for concurrent use.
func (s *Source) Everything() bool { return s.allHeld.Load() }

// Release lets exactly these objects go that the guard holds; false: it holds others, or ctx has ended, and nothing was let go.
func (s *Source) Release(ctx context.Context, ids []object.ID) bool {
	r := release{ids, make(chan bool, 1)}
	select {
	case s.releases <- r:
		return <-r.done
	case <-ctx.Done():
		return false
	}
}

// release takes held objects away, if these are all that are held.
func (f *folder) release(ids []object.ID) (events []object.Event, ok bool) {
	if len(ids) != len(f.held) {
		return nil, false
	}
	ids = slices.SortedFunc(slices.Values(ids), object.ID.Compare)
	for i, id := range ids {
		if !f.held[id] || i > 0 && ids[i-1] == id {
			return nil, false
		}
	}
	for _, id := range ids {
		events = append(events, object.Event{Op: object.Delete, ID: id, Location: f.told[id].Location})
		delete(f.told, id)
	}
	clear(f.held)
	return events, true
}
