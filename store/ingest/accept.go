package ingest

import (
	"context"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/removal"
)

// acceptance asks Run to end a hold.
type acceptance struct {
	id   string
	done chan accepted
}

type accepted struct {
	hold removal.Hold
	ok   bool
}

// heldRemovals lists the removals that are held under an epoch.
type heldRemovals struct {
	epoch kv.Epoch
	holds []removal.Hold
}

// Removals returns the removals that are held under an epoch, the oldest first. False: this process does not lead under
// it, or has not compared everything with the store yet.
func (l *Loop) Removals(epoch kv.Epoch) ([]removal.Hold, bool) {
	p := l.removals.Load()
	if p == nil || p.epoch != epoch {
		return nil, false
	}
	return p.holds, true
}

// Accept ends a hold by its ID: its objects are removed. False: there is no such hold, or ctx has ended.
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

// accept ends a hold by its ID. False: there is no such hold.
func (s *State) accept(id string) ([]Effect, removal.Hold, bool) {
	hold, gone, ok := s.removals.accept(id)
	if !ok {
		return nil, hold, false
	}
	s.takeAgain(gone)
	return s.next(), hold, true
}

// publishRemovals makes the held removals readable.
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
