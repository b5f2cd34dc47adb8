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

// removals decides which removals of objects are obeyed, and keeps those that are held. Events of sources pass through
// filter; stored records without an object pass through compare. An object whose removal is held while this process
// leads stays in the inventory with its records. Of one that went before, only stored records are known: they stay
// under their keys. State owns it.
type removals struct {
	inventory  *inventory
	stored     *stored
	sources    *sources
	allowEmpty bool // every removal is obeyed
	heldFor    time.Duration
	book       *removal.Book
	memory     removal.Memory
	keys       map[model.Key]bool                   // stored records of held objects that are not in the inventory
	read       map[origin.Origin]map[object.ID]bool // the kinds that each Kubernetes cluster was listed in full of; nil: all kinds
	why        map[object.ID]object.Why             // of objects that went while the store was being read
	version    uint64                               // counts changes of book
	compared   bool                                 // the store was compared in this term
	walks      int                                  // over all of keys, for tests
}

func newRemovals(o Options, w *inventory, s *stored, from *sources) *removals {
	return &removals{inventory: w, stored: s, sources: from, allowEmpty: o.AllowEmpty, heldFor: o.HeldFor, book: removal.NewBook(0, nil),
		keys: map[model.Key]bool{}, read: map[origin.Origin]map[object.ID]bool{}, why: map[object.ID]object.Why{}}
}

// begin begins a term with the removals that the leader before held.
func (r *removals) begin(held []removal.Hold) { r.book = removal.NewBook(r.heldFor, held) }

// noteKinds notes which kinds a source has listed in full.
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

// filter returns the events that apply now: all but removals that are held. at is when they were emitted.
func (r *removals) filter(events []object.Event, at time.Time, now phase) []object.Event {
	losses := r.lossesOf(events)
	switch {
	case len(losses) == 0 || r.allowEmpty:
		return events
	case !now.following(): // the comparison holds them
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

// lossesOf returns the objects that events remove. It ends the hold of objects that are there again, or that their API
// server deleted.
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
	r.recompare(back...) // stored records of these objects may be others than they have now
	return losses
}

// reason returns why an object of the inventory went. A Pod that was not ready, or on its way out, is not missed in a
// folder.
func (r *removals) reason(e object.Event) object.Why {
	if pod := r.inventory.objects.Pod(e.ID); e.Why == object.Missing && pod != nil && (pod.NotReady || pod.Terminating || pod.Ended) {
		return object.Deleted
	}
	return e.Why
}

// hold holds those losses that are not obeyed.
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

// recompare has the stored records of held objects compared again. It walks over all that are held, whichever the
// objects are.
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

// drop forgets stored records of held objects under keys whose wanted records changed.
func (r *removals) drop(changed map[model.Key]bool) {
	for key := range changed {
		delete(r.keys, key)
	}
}

// releaseAll ends every hold at the end of a term, and returns the removals: the next leader holds them again
// (Gained.Held).
func (r *removals) releaseAll() []object.Event {
	gone := deletions(r.book.Objects())
	r.book, r.compared = removal.NewBook(0, nil), false
	r.version++
	clear(r.keys)
	clear(r.why)
	return gone
}

// accept ends a hold by its ID, and returns the removals. False: there is no such hold.
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

// compare decides about stored records that no object makes. It returns those to delete, and holds the others. A record
// whose object exists, and does not make it any more, is deleted.
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

// reasonOfStored returns why the object of a stored record is gone, as far as it is known. Sources other than
// Kubernetes emit everything that there is. everything: no stored record of the origin has an object.
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

// populations counts the objects of the inventory whose removal is not held.
func (r *removals) populations() map[object.ID]int {
	n := map[object.ID]int{}
	for id, one := range r.inventory.objects.All() {
		if one.Object() != nil && !r.book.Has(id) {
			n[removal.Population(id)]++
		}
	}
	return n
}

// sizesAround counts the populations before and after events.
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

// storedPopulations counts the objects of the stored records.
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

// emptyOrigins returns the origins of which no stored record has an object any more, as where another cluster, or an
// empty one, is read.
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
