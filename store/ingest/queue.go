package ingest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/store/model"
)

// queue is what waits to be written: keys in groups. A group is what one change made differ, and is written as a whole.
// Groups wait in queues, one for each namespace, that are served in turn: what waits in one does not hold up another.
type queue struct {
	of         map[model.Key]*group
	namespaces map[string]*namespaceQueue // by namespace
	turns      []*namespaceQueue          // all of namespaces, whose turn is next in front
	places     uint64
	waits      int // keys that are to be written
	config     int // those of them that do not follow workloads
}

// group is keys that are written together. Those that need not be written belong to it, too: were one of them to change again
// and be written first, a part of this change would be seen without the rest.
type group struct {
	place   uint64             // in line; counts up
	since   time.Time          // of the oldest change in it; zero: it came of no event
	keys    map[model.Key]bool // false: need not be written
	waits   int                // how many are true
	waitsIn *namespaceQueue    // nil: it does not wait any more
}

// namespaceQueue is the groups of one namespace.
type namespaceQueue struct {
	namespace string
	groups    []*group // by place; those with another queue have left
	live      int      // those that have not
	passed    bool     // there was no room for its first group in the last batch
}

// empty says that nothing waits.
func (q *queue) empty() bool { return q.waits == 0 }

// waitsFor says whether a key is to be written.
func (q *queue) waitsFor(key model.Key) bool { return q.of[key] != nil && q.of[key].keys[key] }

func newQueue() *queue {
	return &queue{of: map[model.Key]*group{}, namespaces: map[string]*namespaceQueue{}}
}

// add takes one change: keys that are to be written (true), and keys that need not be, or not any more (false). What waits
// already with one of these keys becomes one group with the change, in the place of the oldest.
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

// set says of a key of a group whether it is to be written.
func (q *queue) set(g *group, key model.Key, waits bool) {
	if g.keys[key] != waits {
		q.count(g, key, waits)
	}
	g.keys[key], q.of[key] = waits, g
}

// count is one key more, or less, that is to be written.
func (q *queue) count(g *group, key model.Key, more bool) {
	n := 1
	if !more {
		n = -1
	}
	g.waits += n
	q.waits += n
	if !key.Kind.FollowsWorkloads() {
		q.config += n
	}
}

// remove takes a group out of the queue, with all its keys.
func (q *queue) remove(g *group) {
	for key, waits := range g.keys {
		delete(q.of, key)
		if waits {
			q.count(g, key, false)
		}
	}
	g.leave()
	if len(q.of) == 0 {
		q.of = map[model.Key]*group{} // of a comparison with what is stored it had all keys, and maps keep their room
	}
}

// emptied is an empty map: this one, unless it had so much that its room would be kept for nothing.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > 1000 {
		return map[K]V{}
	}
	clear(m)
	return m
}

// join makes one group of two; the first may be nil.
func (q *queue) join(a, b *group) *group {
	if a == nil {
		return b
	}
	if b.place < a.place {
		a, b = b, a
	}
	a.since = earlier(a.since, b.since)
	b.leave()
	if len(a.keys) < len(b.keys) { // the fewer move
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

// assign has a group wait in the queue of these where the fewest do; one that has nothing to write waits nowhere.
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

// length is how many groups wait in a queue.
func (q *queue) length(namespace string) int {
	if l := q.namespaces[namespace]; l != nil {
		return l.live
	}
	return 0
}

func (g *group) leave() {
	if g.waitsIn != nil {
		g.waitsIn.live--
		g.waitsIn = nil
	}
}

// insert gives a group its place. The queue stays in proportion to what waits in it, however much joins and leaves.
func (l *namespaceQueue) insert(g *group) {
	if len(l.groups) > 2*l.live+8 {
		l.groups = slices.DeleteFunc(l.groups, func(other *group) bool { return other.waitsIn != l || other == g })
	}
	at, there := slices.BinarySearchFunc(l.groups, g.place, func(other *group, place uint64) int { return cmp.Compare(other.place, place) })
	if !there { // it may come back to where it was
		l.groups = slices.Insert(l.groups, at, g)
	}
}

// first is the group that waits longest; nil: none waits.
func (l *namespaceQueue) first() *group {
	for len(l.groups) > 0 && l.groups[0].waitsIn != l {
		l.groups = l.groups[1:]
	}
	if len(l.groups) == 0 {
		return nil
	}
	return l.groups[0]
}

// take hands over groups for one batch, queue by queue in turn, each queue's in line. It ends when there is no room: most is that
// of an empty batch, in keys, and add says how much is left. A group that does not fit lets those of other queues pass, once:
// then it is the first of its batch, and that may be larger than most. While any waits one is handed over, whatever most is:
// who takes until nothing waits comes to an end.
func (q *queue) take(most int, add func(*group) (room int)) {
	most = max(most, 1)
	room := most
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
		case g.waits > room && (room < most || !l.passed):
			l.passed = true
			passed = append(passed, l)
		default:
			room = serve(l, g)
		}
	}
	if room == most && len(passed) > 0 {
		serve(passed[0], passed[0].first())
		passed = passed[1:]
	}
	if q.turns = append(passed, q.turns...); len(q.of) == 0 { // queues hold on to groups that have left
		q.namespaces, q.turns = map[string]*namespaceQueue{}, nil
	}
}

// earlier is the earlier of two times, of which either may be unknown.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
