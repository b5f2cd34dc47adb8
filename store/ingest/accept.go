package ingest

import (
	"context"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/removal"
)

// acceptance is a request to Run to end a hold. A hold is a group of removals that are held back, for example until an
// operator accepts them.
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

// Removals returns the holds of the leader under an epoch, the oldest first. A hold is a group of removals that are
// held back. False means that this process does not lead under the epoch, or has not yet compared everything with the
// store in its term. The list is then nil. Otherwise it is shared and read-only.
func (l *Loop) Removals(epoch kv.Epoch) ([]removal.Hold, bool) {
	p := l.removals.Load()
	if p == nil || p.epoch != epoch {
		return nil, false
	}
	return p.holds, true
}

// Accept ends a hold by its ID, and returns the hold. The held objects are removed at once. Their records are deleted
// later, and Accept does not wait for that. It blocks until Run has processed the request. False means that no hold has
// the ID, or that ctx ended before Run received the request.
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

// accept ends a hold by its ID, and returns the effects and the hold. False: no hold has the ID.
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
