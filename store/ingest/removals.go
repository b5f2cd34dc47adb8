package ingest

import (
	"maps"
	"sync"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/removal"
)

// removals decides which removals of objects apply at once, and stores the others (held removals), which wait. The
// method filter processes events of sources. The method compare processes stored records that have no object. An object
// whose removal was held in this term of leadership stays in the inventory with its records. If an object vanished
// before this term, only its stored records are known. They stay stored (field keys). State owns it.
type removals struct {
	inventory  *inventory
	stored     *stored
	sources    *sources
	allowEmpty bool // true: no removal is held
	heldFor    time.Duration
	book       *removal.Book
	memory     removal.Memory
	keys       map[model.Key]bool                   // stored records of held objects that are not in the inventory
	read       map[origin.Origin]map[object.ID]bool // by source, the kinds that it listed completely; nil: all kinds
	why        map[object.ID]object.Why             // reasons of removals that sources emitted while the store was being read
	version    uint64                               // number of changes of book
	compared   bool                                 // the store was compared in this term
	walks      int                                  // number of passes over all keys, for tests
}

func newRemovals(o Options, w *inventory, s *stored, from *sources) *removals {
	return &removals{inventory: w, stored: s, sources: from, allowEmpty: o.AllowEmpty, heldFor: o.HeldFor, book: removal.NewBook(0, nil),
		keys: map[model.Key]bool{}, read: map[origin.Origin]map[object.ID]bool{}, why: map[object.ID]object.Why{}}
}

// begin starts a term with the removals that the previous leader held.
func (r *removals) begin(held []removal.Hold) { r.book = removal.NewBook(r.heldFor, held) }

// noteKinds stores the kinds that a source has listed completely.
func (r *removals) noteKinds(synced object.Event) {
	var kinds map[object.ID]bool
	for _, kind := range synced.Kinds {
		if kinds == nil {
			kinds = make(map[object.ID]bool, len(synced.Kinds))
		}
		kinds[object.ID{Group: kind.Group, Kind: kind.Kind}] = true
	}
	r.read[synced.ID.Origin] = kinds
}

// filter returns the events to apply: all except removals that are held. Before the method compare has run in a term,
// filter returns all events, since compare then decides about the removals. The parameter at is the time when the
// events were emitted.
func (r *removals) filter(events []object.Event, at time.Time, now phase) []object.Event {
	losses := r.lossesOf(events)
	switch {
	case len(losses) == 0 || r.allowEmpty:
		return events
	case !now.following():
		for _, l := range losses {
			if now == loading {
				r.why[l.ID] = l.Why
			}
		}
		return events
	}
	r.hold(at, losses, func() removal.Sizes { return r.sizesAround(events) })
	var rest []object.Event
	for _, e := range events {
		if e.Op != object.Delete || !r.book.Has(e.ID) {
			rest = append(rest, e)
		}
	}
	return rest
}

// lossesOf returns the objects that events remove without a deletion by the API server. It ends the hold of objects
// that exist again, or that the API server deleted. It also stores the kinds that sources have listed.
func (r *removals) lossesOf(events []object.Event) (losses []removal.Loss) {
	var back []object.ID
	seen := map[object.ID]bool{}
	for _, e := range events {
		known := r.inventory.objects.Get(e.ID)
		switch e.Op {
		case object.Synced:
			r.noteKinds(e)
			continue
		case object.Put:
			delete(r.why, e.ID)
		case object.Delete, object.Broken, object.Forget:
		}
		switch {
		case e.Op == object.Put, e.Op == object.Broken && known != nil, e.Op == object.Delete && e.Why == object.Deleted:
			if r.book.Has(e.ID) {
				back = append(back, e.ID)
			}
		case e.Op == object.Delete && known != nil && known.Object() != nil && !seen[e.ID]:
			seen[e.ID] = true
			losses = append(losses, removal.Loss{ID: e.ID, Why: r.reason(e)})
		}
	}
	for _, id := range back {
		r.book.Back(id)
		r.version++
	}
	r.recompare(back...) // wanted records of these objects may differ from the stored ones
	return losses
}

// reason returns the reason for which an object of the inventory is gone. A Pod that is missing in a folder counts as
// deleted if it was terminating, had ended, or was not ready.
func (r *removals) reason(e object.Event) object.Why {
	if pod := r.inventory.objects.Pod(e.ID); e.Why == object.Missing && pod != nil && (pod.NotReady || pod.Terminating || pod.Ended) {
		return object.Deleted
	}
	return e.Why
}

// hold selects the losses (removals without a deletion by the API server) that have to wait, and adds them to the book.
// It calls the function sizes at most once.
func (r *removals) hold(at time.Time, losses []removal.Loss, sizes func() removal.Sizes) {
	sizes = sync.OnceValue(sizes)
	held := r.memory.SelectHeld(at, losses, sizes)
	if len(held) == 0 {
		return
	}
	left := map[object.ID]int{}
	for of, n := range sizes().After {
		left[removal.KindOf(of)] += n
	}
	r.book.Add(at, held, func(kind object.ID) bool { return left[kind] <= 0 })
	r.version++
}

// recompare schedules the comparison of the stored records of objects whose hold has ended. It visits the whole map
// r.keys, however few the objects are.
func (r *removals) recompare(ids ...object.ID) {
	if len(ids) == 0 || len(r.keys) == 0 {
		return
	}
	r.walks++
	gone := make(map[object.ID]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	for key := range r.keys {
		if gone[r.inventory.sourceOf(key)] {
			delete(r.keys, key)
			r.inventory.wanted.changed[key] = true
		}
	}
}

// drop removes changed keys from r.keys, since their records are compared with the wanted ones instead.
func (r *removals) drop(changed map[model.Key]bool) {
	for key := range changed {
		delete(r.keys, key)
	}
}

// releaseAll ends all holds at the end of a term, and returns the removals as events. The next leader holds them again
// (Gained.Held).
func (r *removals) releaseAll() []object.Event {
	gone := deletions(r.book.Objects())
	r.book, r.compared = removal.NewBook(0, nil), false
	r.version++
	clear(r.keys)
	clear(r.why)
	return gone
}

// accept ends a hold by its ID, and returns the removals as events. The last result is false if no hold has the ID.
func (r *removals) accept(id string) (removal.Hold, []object.Event, bool) {
	hold, ids, ok := r.book.Take(id)
	if !ok {
		return hold, nil, false
	}
	r.version++
	r.recompare(ids...)
	return hold, deletions(ids), true
}

func deletions(ids []object.ID) (gone []object.Event) {
	for _, id := range ids {
		gone = append(gone, object.Event{Op: object.Delete, ID: id})
	}
	return gone
}

// compare decides about the stored records that no object yields. The parameter gone has their keys. compare returns
// the keys of the records to delete, and holds the removal of the others. If the object of a record exists, but yields
// it no longer, the record is always deleted.
func (r *removals) compare(now time.Time, gone []model.Key) (deleted []model.Key) {
	objects := r.inventory.objects
	clear(r.keys)
	r.book.Begin(func(id object.ID) bool { return objects.Get(id) != nil })
	of := map[object.ID][]model.Key{}
	for _, key := range gone {
		of[r.inventory.sourceOf(key)] = append(of[r.inventory.sourceOf(key)], key)
	}
	populations := r.storedPopulations()
	everything := emptyOrigins(of, populations)
	var losses []removal.Loss
	for id := range of {
		if objects.Get(id) == nil && !r.allowEmpty && !r.book.Keep(id) {
			losses = append(losses, removal.Loss{ID: id, Why: r.reasonOfStored(id, everything[id.Origin])})
		}
	}
	r.hold(now, losses, func() removal.Sizes { return removal.Sizes{Before: populations, After: r.populations()} })
	r.book.End()
	r.compared = true
	r.version++
	clear(r.why)
	for id, keys := range of {
		if objects.Get(id) != nil || !r.book.Has(id) {
			deleted = append(deleted, keys...)
			continue
		}
		for _, key := range keys {
			r.keys[key] = true
		}
	}
	return deleted
}

// reasonOfStored returns the reason for which the object of a stored record is gone, as far as it is known. The
// parameter everything is the result of emptyOrigins for the object's origin. Sources other than folders and Kubernetes
// emit all their objects, so the reason is object.Deleted.
func (r *removals) reasonOfStored(id object.ID, everything bool) object.Why {
	o := id.Origin
	kinds, read := r.read[o]
	switch why := r.why[id]; {
	case why != object.Deleted:
		return why
	case isRemote(o) && !r.sources.remotes.isWhole(o):
		return object.Unnamed
	case o.Source() == origin.Files || o == (origin.Origin{}):
		return object.Missing
	case o.Source() == origin.Kube && (everything || !read || kinds != nil && !kinds[object.ID{Group: id.Group, Kind: id.Kind}]):
		return object.Unread
	}
	return object.Deleted
}

// problems returns a problem for each hold.
func (r *removals) problems() (all []object.Problem) {
	for _, h := range r.book.Holds() {
		all = append(all, object.Problem{ID: h.Scope().Of, Code: problem.Held, Severity: problem.Warning, Message: h.Message()})
	}
	return all
}

// populations counts the objects in the inventory by removal.Population (origin, kind and namespace). It leaves out
// objects whose removal is held.
func (r *removals) populations() map[object.ID]int {
	n := map[object.ID]int{}
	for id, one := range r.inventory.objects.All() {
		if one.Object() != nil && !r.book.Has(id) {
			n[removal.Population(id)]++
		}
	}
	return n
}

// sizesAround returns the populations before and after the given events.
func (r *removals) sizesAround(events []object.Event) removal.Sizes {
	before := r.populations()
	after, seen := maps.Clone(before), map[object.ID]bool{}
	for _, e := range events {
		if e.Op != object.Put && e.Op != object.Delete || seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		known := r.inventory.objects.Get(e.ID)
		there := known != nil && known.Object() != nil
		switch {
		case e.Op == object.Put && !there:
			after[removal.Population(e.ID)]++
		case e.Op == object.Delete && there && !r.book.Has(e.ID):
			after[removal.Population(e.ID)]--
		}
	}
	return removal.Sizes{Before: before, After: after}
}

// storedPopulations counts the objects of the stored records by removal.Population.
func (r *removals) storedPopulations() map[object.ID]int {
	n, seen := map[object.ID]int{}, map[object.ID]bool{}
	for key := range r.stored.hashes {
		if id := r.inventory.sourceOf(key); !seen[id] {
			seen[id] = true
			n[removal.Population(id)]++
		}
	}
	return n
}

// emptyOrigins reports for each origin whether all objects of its stored records are gone, for instance after a switch
// to another or an empty cluster. An object that no longer yields one of its records counts as gone.
func emptyOrigins(gone map[object.ID][]model.Key, populations map[object.ID]int) map[origin.Origin]bool {
	left := map[origin.Origin]int{}
	for population, n := range populations {
		left[population.Origin] += n
	}
	for id := range gone {
		left[id.Origin]--
	}
	all := map[origin.Origin]bool{}
	for o, n := range left {
		all[o] = n == 0
	}
	return all
}
