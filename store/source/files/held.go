package files

import (
	"context"
	"slices"

	"navarch.io/navarch/store/object"
)

// release asks Run to let go exactly these losses.
type release struct {
	losses []object.Loss
	done   chan bool
}

// Held is what the shrink guard holds, in no order. Safe for concurrent use.
func (s *Source) Held() []object.Loss {
	if p := s.held.Load(); p != nil {
		return *p
	}
	return nil
}

// Everything says whether all that was emitted is held. Safe for concurrent use.
func (s *Source) Everything() bool { return s.allHeld.Load() }

// Release lets exactly these losses go that the guard holds; false: it holds others, or ctx has ended, and nothing was let go.
func (s *Source) Release(ctx context.Context, losses []object.Loss) bool {
	r := release{losses, make(chan bool, 1)}
	select {
	case s.releases <- r:
		return <-r.done
	case <-ctx.Done():
		return false
	}
}

// release emits what is held as it is now, if these losses are all that is held.
func (f *folder) release(losses []object.Loss) (events []object.Event, ok bool) {
	if !f.guard.Release(losses) {
		return nil, false
	}
	for _, l := range slices.SortedFunc(slices.Values(losses), object.Loss.Compare) {
		_, now := f.Get(l.ID)
		if now == nil {
			events = append(events, f.withdraw(l.ID))
			continue
		}
		f.emitted[l.ID] = now
		events = append(events, object.Event{Op: object.Put, ID: l.ID, Object: now, Location: now.Location})
	}
	return events, true
}
