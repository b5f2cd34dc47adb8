package ingest

import (
	"context"
	"maps"
	"sync"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/removal"
)

// held is which removals a leader holds. An object that goes while this process leads stays in the inventory as it was, and its records with it. Of one
// that went before, the stored records alone are known: they stay under their keys.
type held struct {
	book    *removal.Book
	memory  removal.Memory
	keys    map[model.Key]bool                   // stored records of held objects that are not in the inventory
	read    map[origin.Origin]map[object.ID]bool // the kinds that each Kubernetes cluster was listed in full of
	why     map[object.ID]object.Why             // of objects that went while nothing could be held yet
	changed uint64                               // counts up with each change of book
	shown   bool                                 // what is stored was compared in this term
	looks   int                                  // at all of keys, for tests
}

func newHeld() *held {
	return &held{book: removal.NewBook(0, nil), keys: map[model.Key]bool{}, read: map[origin.Origin]map[object.ID]bool{}, why: map[object.ID]object.Why{}}
}

// listed takes down which kinds a source has listed in full; nil: all of them.
func (h *held) listed(synced object.Event) {
	var kinds map[object.ID]bool
	for _, kind := range synced.Kinds {
		if kinds == nil {
			kinds = make(map[object.ID]bool, len(synced.Kinds))
		}
		kinds[object.ID{Group: kind.Group, Kind: kind.Kind}] = true
	}
	h.read[synced.ID.Origin] = kinds
}

// obeyed are the events that apply now: all but removals that are held.
func (s *State) obeyed(events []object.Event) []object.Event {
	var losses []removal.Loss
	var back []object.ID
	seen := map[object.ID]bool{}
	for _, e := range events {
		if e.Op == object.Put {
			delete(s.held.why, e.ID)
		}
		switch {
		case e.Op == object.Put, e.Op == object.Broken && s.objects[e.ID] != nil, e.Op == object.Delete && e.Why == object.Deleted:
			if s.held.book.Has(e.ID) {
				back = append(back, e.ID)
			}
		case e.Op == object.Delete && s.objects[e.ID] != nil && s.objects[e.ID].object != nil && !seen[e.ID]:
			seen[e.ID] = true
			losses = append(losses, removal.Loss{ID: e.ID, Why: s.reason(e)})
		}
	}
	s.back(back)
	switch {
	case len(losses) == 0 || s.allowEmpty:
		return events
	case s.phase != ready && s.phase != writing: // the comparison holds them
		for _, l := range losses {
			if s.phase == loading {
				s.held.why[l.ID] = l.Why
			}
		}
		return events
	}
	s.hold(s.heard, losses, func() removal.Sizes { return s.sizes(events) })
	var rest []object.Event
	for _, e := range events {
		if e.Op != object.Delete || !s.held.book.Has(e.ID) {
			rest = append(rest, e)
		}
	}
	return rest
}

// reason is why an object of the inventory went. A Pod that was not ready, or on its way out, is not missed in a folder.
func (s *State) reason(e object.Event) object.Why {
	if pod := s.Pod(e.ID); e.Why == object.Missing && pod != nil && (pod.NotReady || pod.Terminating || pod.Ended) {
		return object.Deleted
	}
	return e.Why
}

// hold judges losses, and holds those that are not obeyed.
func (s *State) hold(at time.Time, losses []removal.Loss, sizes func() removal.Sizes) {
	sizes = sync.OnceValue(sizes)
	held := s.held.memory.Judge(at, losses, sizes)
	if len(held) == 0 {
		return
	}
	left := map[object.ID]int{}
	for of, n := range sizes().After {
		left[removal.KindOf(of)] += n
	}
	s.held.book.Add(at, held, func(kind object.ID) bool { return left[kind] <= 0 })
	s.held.changed++
}

// populations counts the objects of the inventory that are not held.
func (s *State) populations() map[object.ID]int {
	n := map[object.ID]int{}
	for id, e := range s.objects {
		if e.object != nil && !s.held.book.Has(id) {
			n[removal.Population(id)]++
		}
	}
	return n
}

// sizes are those of the populations before and after events.
func (s *State) sizes(events []object.Event) removal.Sizes {
	before := s.populations()
	after, seen := maps.Clone(before), map[object.ID]bool{}
	for _, e := range events {
		if e.Op != object.Put && e.Op != object.Delete || seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		switch known := s.objects[e.ID]; {
		case e.Op == object.Put && (known == nil || known.object == nil):
			after[removal.Population(e.ID)]++
		case e.Op == object.Delete && known != nil && known.object != nil && !s.held.book.Has(e.ID):
			after[removal.Population(e.ID)]--
		}
	}
	return removal.Sizes{Before: before, After: after}
}

// back ends the hold of objects that are there again, or were deleted by their API server. What is stored of them may be other records than they have now.
func (s *State) back(ids []object.ID) {
	for _, id := range ids {
		s.held.book.Back(id)
		s.held.changed++
	}
	s.letGo(ids...)
}

// letGo has the stored records of objects compared again. It looks at all that are held, whichever the objects are.
func (s *State) letGo(ids ...object.ID) {
	if len(ids) == 0 || len(s.held.keys) == 0 {
		return
	}
	s.held.looks++
	gone := make(map[object.ID]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	for key := range s.held.keys {
		if gone[s.sourceOf(key)] {
			delete(s.held.keys, key)
			s.changed[key] = true
		}
	}
}

// letGoAll ends everything that is held, at the end of a term: whoever leads next holds it again (Gained.Held).
func (s *State) letGoAll() {
	var gone []object.Event
	for _, id := range s.held.book.Objects() {
		gone = append(gone, object.Event{Op: object.Delete, ID: id})
	}
	s.held.book, s.held.shown = removal.NewBook(0, nil), false
	s.held.changed++
	clear(s.held.keys)
	clear(s.held.why)
	s.yielder = loop.NewYielder()
	s.take(gone)
	s.collect()
}

// accept lets a removal go by its ID; false: none has it.
func (s *State) accept(id string) ([]Effect, removal.Hold, bool) {
	hold, ids, ok := s.held.book.Take(id)
	if !ok {
		return nil, hold, false
	}
	s.held.changed++
	s.letGo(ids...)
	var gone []object.Event
	for _, id := range ids {
		gone = append(gone, object.Event{Op: object.Delete, ID: id})
	}
	s.yielder = loop.NewYielder()
	s.take(gone)
	s.collect()
	return append(s.flush(), s.seal()...), hold, true
}

// removed returns those of the stored records without an object that are to be deleted; the others are held. A record whose object is there, and
// makes it no more, is deleted.
func (s *State) removed(now time.Time, gone []model.Key) (deleted []model.Key) {
	clear(s.held.keys)
	s.held.book.Begin(func(id object.ID) bool { return s.objects[id] != nil })
	of := map[object.ID][]model.Key{}
	for _, key := range gone {
		of[s.sourceOf(key)] = append(of[s.sourceOf(key)], key)
	}
	stored := s.storedPopulations()
	everything := s.everythingGone(of, stored)
	var losses []removal.Loss
	for id := range of {
		if s.objects[id] == nil && !s.allowEmpty && !s.held.book.Keep(id) {
			losses = append(losses, removal.Loss{ID: id, Why: s.lost(id, everything[id.Origin])})
		}
	}
	s.hold(now, losses, func() removal.Sizes { return removal.Sizes{Before: stored, After: s.populations()} })
	s.held.book.End()
	s.held.shown = true
	s.held.changed++
	clear(s.held.why)
	for id, keys := range of {
		if s.objects[id] != nil || !s.held.book.Has(id) {
			deleted = append(deleted, keys...)
			continue
		}
		for _, key := range keys {
			s.held.keys[key] = true
		}
	}
	return deleted
}

// storedPopulations counts the objects that stored records are of.
func (s *State) storedPopulations() map[object.ID]int {
	n, seen := map[object.ID]int{}, map[object.ID]bool{}
	for key := range s.have {
		if id := s.sourceOf(key); !seen[id] {
			seen[id] = true
			n[removal.Population(id)]++
		}
	}
	return n
}

// everythingGone says of which origins nothing that is stored has an object any more, as where another cluster, or an empty one, is read.
func (s *State) everythingGone(of map[object.ID][]model.Key, stored map[object.ID]int) map[origin.Origin]bool {
	left := map[origin.Origin]int{}
	for population, n := range stored {
		left[population.Origin] += n
	}
	for id := range of {
		left[id.Origin]--
	}
	all := map[origin.Origin]bool{}
	for o, n := range left {
		all[o] = n == 0
	}
	return all
}

// lost is by what it is known that the object of a stored record is gone. Sources of our own say all that there is.
func (s *State) lost(id object.ID, everything bool) object.Why {
	o := id.Origin
	kinds, read := s.held.read[o]
	switch why := s.held.why[id]; {
	case why != object.Deleted:
		return why
	case remote(o) && !s.remotes.isWhole(o):
		return object.Unnamed
	case o.Source() == origin.Files || o == (origin.Origin{}):
		return object.Missing
	case o.Source() == origin.Kube && (everything || !read || kinds != nil && !kinds[object.ID{Group: id.Group, Kind: id.Kind}]):
		return object.Unread
	}
	return object.Deleted
}

// removalProblems lists what is held.
func (s *State) removalProblems() (all []object.Problem) {
	for _, h := range s.held.book.Holds() {
		all = append(all, object.Problem{ID: h.Scope().Of, Code: problem.Held, Severity: problem.Warning, Message: h.Message()})
	}
	return all
}

// The Loop's part.

// acceptance asks Run to let a removal go.
type acceptance struct {
	id   string
	done chan accepted
}

type accepted struct {
	hold removal.Hold
	ok   bool
}

// heldNow lists the removals that are held under an epoch.
type heldNow struct {
	epoch kv.Epoch
	holds []removal.Hold
}

// Removals are those that are held under an epoch, the oldest first; false: this process does not lead under it, or has not compared everything with what
// is stored yet.
func (l *Loop) Removals(epoch kv.Epoch) ([]removal.Hold, bool) {
	p := l.removals.Load()
	if p == nil || p.epoch != epoch {
		return nil, false
	}
	return p.holds, true
}

// Accept lets a removal go by its ID. False: none has it (any more), or ctx has ended.
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

// publishRemovals makes what is held readable.
func (l *Loop) publishRemovals() {
	h := l.state.held
	if l.books == h.changed {
		return
	}
	l.books = h.changed
	if !h.shown {
		l.removals.Store(nil)
		return
	}
	l.removals.Store(&heldNow{l.state.epoch, h.book.Holds()})
}
