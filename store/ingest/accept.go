package ingest

import (
	"context"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/removal"
)

// acceptance is a request to Loop.Run to end a hold. A hold is a group of removals that are held back, for example
// until an operator accepts them.
type acceptance struct {
	id   string
	done chan accepted
}

// accepted is the result of an acceptance; ok is false if the hold does not exist.
type accepted struct {
	hold removal.Hold
	ok   bool
}

// accept applies an acceptance, sends its result, and returns the effects.
func (l *Loop) accept(a acceptance) (effects []Effect) {
	var done accepted
	effects, done.hold, done.ok = l.state.accept(a.id)
	a.done <- done
	return effects
}

// heldRemovals contains the held removals of an epoch.
type heldRemovals struct {
	epoch kv.Epoch
	holds []removal.Hold
}

// Removals returns the holds of this process as the leader in an epoch (one term of leadership). A hold is a group of
// removals that are held back. The oldest hold is first. The list is shared and read-only. If this process does not
// lead in the epoch, or has not yet compared all objects with the store in this epoch, Removals returns nil and false.
func (l *Loop) Removals(epoch kv.Epoch) ([]removal.Hold, bool) {
	p := l.removals.Load()
	if p == nil || p.epoch != epoch {
		return nil, false
	}
	return p.holds, true
}

// Accept ends the hold with this ID, and returns the hold. The held objects are removed at once. Their records in the
// store are deleted later, and Accept does not wait for that. Accept blocks until Run has processed the request. The
// result is false if no hold has the ID, or if ctx ended before Run received the request.
func (l *Loop) Accept(ctx context.Context, id string) (removal.Hold, bool) {
	a := acceptance{id, make(chan accepted, 1)}
	select {
	case l.accepts <- a:
		done := <-a.done
		return done.hold, done.ok
	case <-ctx.Done():
		return removal.Hold{}, false
	}
}

// accept ends the hold with this ID, and returns the effects and the hold. The last result is false if no hold has the
// ID.
func (s *State) accept(id string) ([]Effect, removal.Hold, bool) {
	hold, gone, ok := s.removals.accept(id)
	if !ok {
		return nil, hold, false
	}
	s.applyReleased(gone)
	return s.next(), hold, true
}

// publishRemovals updates the result of Removals if the held removals have changed.
func (l *Loop) publishRemovals() {
	r := l.state.removals
	if l.removalsVersion == r.version {
		return
	}
	l.removalsVersion = r.version
	if !r.compared {
		l.removals.Store(nil)
		return
	}
	l.removals.Store(&heldRemovals{l.state.epoch, r.book.Holds()})
}
