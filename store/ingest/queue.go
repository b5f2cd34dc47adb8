package ingest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/store/model"
)

// queue contains the keys of records that wait to be written or deleted, in groups. One change makes one group, which
// is written in one batch. Groups wait in one queue for each namespace. The queues are served in turn, so a long queue
// does not delay the others. The type writes owns the queue.
type queue struct {
	of         map[model.Key]*group       // waiting groups, by each of their keys
	namespaces map[string]*namespaceQueue // by namespace
	turns      []*namespaceQueue          // all queues; the first one is served next
	places     uint64                     // place of the newest group
	waits      int                        // number of keys to be written
	config     int                        // number of keys to be written, without those of endpoints and workloads
}

// group contains keys that are written together. It may include keys that need no write. A later change of such a key
// joins the group, so that readers never see the later change without this one.
type group struct {
	place   uint64             // order of arrival
	since   time.Time          // time of the oldest change; zero: no event caused it
	keys    map[model.Key]bool // true: the key has to be written
	waits   int                // number of keys to be written
	waitsIn *namespaceQueue    // nil: the group does not wait any more
}

// namespaceQueue contains the groups of one namespace.
type namespaceQueue struct {
	namespace string
	groups    []*group // sorted by place; includes groups that have left the queue (their waitsIn differs)
	live      int      // number of groups that have not left the queue
	passed    bool     // an earlier batch had no room for the queue's first group
}

// empty reports whether no key waits.
func (q *queue) empty() bool { return q.waits == 0 }

// waitsFor reports whether a key waits to be written.
func (q *queue) waitsFor(key model.Key) bool { return q.of[key] != nil && q.of[key].keys[key] }

func newQueue() *queue {
	return &queue{of: map[model.Key]*group{}, namespaces: map[string]*namespaceQueue{}}
}

// add adds one change. The map changed has keys to write (true), and keys that need no write any more (false). Waiting
// groups with one of these keys are joined with the change, at the position of the oldest group. The parameter since is
// the time of the change; it is zero if no event caused the change.
func (q *queue) add(changed map[model.Key]bool, since time.Time) {
	var g *group
	homes := map[string]bool{}
	for key, differs := range changed {
		if other := q.of[key]; other != nil && other != g {
			homes[other.waitsIn.namespace] = true
			g = q.join(g, other)
		}
		if differs {
			homes[key.Namespace] = true
		}
	}
	if len(homes) == 0 {
		return
	}
	if g == nil {
		q.places++
		g = &group{place: q.places, keys: make(map[model.Key]bool, len(changed))}
	}
	g.since = earlier(g.since, since)
	for key, differs := range changed {
		q.set(g, key, differs)
	}
	q.assign(g, homes)
}

// set adds a key to a group, or changes whether the key has to be written.
func (q *queue) set(g *group, key model.Key, waits bool) {
	if g.keys[key] != waits {
		q.count(g, key, waits)
	}
	g.keys[key], q.of[key] = waits, g
}

// count updates the numbers of keys to be written. It adds the key if adds is true, and subtracts the key if adds is
// false.
func (q *queue) count(g *group, key model.Key, adds bool) {
	n := 1
	if !adds {
		n = -1
	}
	g.waits += n
	q.waits += n
	if !key.Kind.FollowsWorkloads() {
		q.config += n
	}
}

// remove removes a group, with all its keys.
func (q *queue) remove(g *group) {
	for key, waits := range g.keys {
		delete(q.of, key)
		if waits {
			q.count(g, key, false)
		}
	}
	g.leave()
	if len(q.of) == 0 {
		q.of = map[model.Key]*group{} // a full comparison may have filled the map, and maps do not shrink
	}
}

// join merges two groups into the older one, and returns it. If a is nil, join returns b.
func (q *queue) join(a, b *group) *group {
	if a == nil {
		return b
	}
	if b.place < a.place {
		a, b = b, a
	}
	a.since = earlier(a.since, b.since)
	b.leave()
	if len(a.keys) < len(b.keys) { // fewer keys move
		for key := range b.keys {
			q.of[key] = a
		}
		a.keys, b.keys = b.keys, a.keys
	}
	for key, waits := range b.keys {
		a.keys[key], q.of[key] = waits, a
	}
	a.waits += b.waits
	return a
}

// assign puts a group into the shortest queue of the given namespaces. A group without keys to write is removed.
func (q *queue) assign(g *group, homes map[string]bool) {
	if g.waits == 0 {
		q.remove(g)
		return
	}
	was := g.waitsIn
	g.leave()
	home := slices.MinFunc(slices.Collect(maps.Keys(homes)), func(a, b string) int {
		return cmp.Or(cmp.Compare(q.length(a), q.length(b)), cmp.Compare(a, b))
	})
	l := q.namespaces[home]
	if l == nil {
		l = &namespaceQueue{namespace: home}
		q.namespaces[home] = l
		q.turns = append(q.turns, l)
	}
	if g.waitsIn = l; l != was {
		l.insert(g)
	}
	l.live++
}

// length counts the groups that wait in the queue of a namespace.
func (q *queue) length(namespace string) int {
	if l := q.namespaces[namespace]; l != nil {
		return l.live
	}
	return 0
}

// leave removes a group from its queue.
func (g *group) leave() {
	if g.waitsIn != nil {
		g.waitsIn.live--
		g.waitsIn = nil
	}
}

// insert inserts a group into groups, in the order of place. Groups that have left the queue are dropped once they are
// many, so the list stays in proportion to the waiting groups.
func (l *namespaceQueue) insert(g *group) {
	if len(l.groups) > 2*l.live+8 {
		l.groups = slices.DeleteFunc(l.groups, func(other *group) bool { return other.waitsIn != l || other == g })
	}
	at, there := slices.BinarySearchFunc(l.groups, g.place, func(other *group, place uint64) int { return cmp.Compare(other.place, place) })
	if !there { // if it is there, the group had left the queue, and comes back to its position
		l.groups = slices.Insert(l.groups, at, g)
	}
}

// first returns the waiting group with the lowest place, or nil if no group waits.
func (l *namespaceQueue) first() *group {
	for len(l.groups) > 0 && l.groups[0].waitsIn != l {
		l.groups = l.groups[1:]
	}
	if len(l.groups) == 0 {
		return nil
	}
	return l.groups[0]
}

// take removes groups for one batch, and calls the function add with each. It serves the queues in turn, each in its
// order, until the batch is full. The parameter capacity is the capacity of the batch in keys, and add returns the
// remaining capacity. If a group does not fit, groups of other queues pass it, and its queue is served first in the
// next batch. The first group of a batch may then exceed the capacity. If any group waits, take calls add at least
// once, even if the capacity is below 1. So a caller that repeats take empties the queue.
func (q *queue) take(capacity int, add func(*group) (room int)) {
	capacity = max(capacity, 1)
	room := capacity
	var passed []*namespaceQueue
	serve := func(l *namespaceQueue, g *group) int {
		q.remove(g)
		l.passed = false
		q.turns = append(q.turns, l)
		return add(g)
	}
	for room > 0 && len(q.turns) > 0 {
		l := q.turns[0]
		q.turns = q.turns[1:]
		g := l.first()
		switch {
		case g == nil:
			delete(q.namespaces, l.namespace)
		case g.waits > room && (room < capacity || !l.passed):
			l.passed = true
			passed = append(passed, l)
		default:
			room = serve(l, g)
		}
	}
	if room == capacity && len(passed) > 0 {
		serve(passed[0], passed[0].first())
		passed = passed[1:]
	}
	if q.turns = append(passed, q.turns...); len(q.of) == 0 { // the queues may still contain groups that have left
		q.namespaces, q.turns = map[string]*namespaceQueue{}, nil
	}
}

// earlier returns the earlier of two times. If one time is zero (unknown), the other time is returned.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
