package ingest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/store/model"
)

// queue holds the keys that wait to be written, in groups. One change makes one group, which is written as a whole. Groups
// wait in queues, one for each namespace, that are served in turn: a full queue does not delay the others. writes owns it.
type queue struct {
	of         map[model.Key]*group
	namespaces map[string]*namespaceQueue // by namespace
	turns      []*namespaceQueue          // all queues, the next turn first
	places     uint64
	waits      int // keys to be written
	config     int // of these, keys of kinds that do not follow workloads
}

// group holds keys that are written together. Keys that need not be written belong to it, too: if one of them changed again
// and were written first, readers would see a part of this change.
type group struct {
	place   uint64             // order of arrival
	since   time.Time          // of the oldest change; zero: no event caused it
	keys    map[model.Key]bool // false: need not be written
	waits   int                // counts the keys that are true
	waitsIn *namespaceQueue    // nil: the group does not wait any more
}

// namespaceQueue holds the groups of one namespace.
type namespaceQueue struct {
	namespace string
	groups    []*group // by place; groups that wait in another queue have left
	live      int      // groups that have not left
	passed    bool     // there was no room for its first group in the last batch
}

// empty reports whether no key waits.
func (q *queue) empty() bool { return q.waits == 0 }

// waitsFor reports whether a key is to be written.
func (q *queue) waitsFor(key model.Key) bool { return q.of[key] != nil && q.of[key].keys[key] }

func newQueue() *queue {
	return &queue{of: map[model.Key]*group{}, namespaces: map[string]*namespaceQueue{}}
}

// add adds one change: keys that are to be written (true), and keys that need not be, or not any more (false). Waiting groups
// with one of these keys are joined with the change, in the place of the oldest.
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

// set sets whether a key of a group is to be written.
func (q *queue) set(g *group, key model.Key, waits bool) {
	if g.keys[key] != waits {
		q.count(g, key, waits)
	}
	g.keys[key], q.of[key] = waits, g
}

// count counts a key that is to be written, or not any more.
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
		q.of = map[model.Key]*group{} // a full comparison fills it with all keys, and maps keep their room
	}
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

// assign puts a group into the shortest of some queues. A group without keys to write is removed.
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

// length counts the groups that wait in a queue.
func (q *queue) length(namespace string) int {
	if l := q.namespaces[namespace]; l != nil {
		return l.live
	}
	return 0
}

// leave takes a group out of its queue.
func (g *group) leave() {
	if g.waitsIn != nil {
		g.waitsIn.live--
		g.waitsIn = nil
	}
}

// insert puts a group in its place. The list stays in proportion to the waiting groups, however many join and leave.
func (l *namespaceQueue) insert(g *group) {
	if len(l.groups) > 2*l.live+8 {
		l.groups = slices.DeleteFunc(l.groups, func(other *group) bool { return other.waitsIn != l || other == g })
	}
	at, there := slices.BinarySearchFunc(l.groups, g.place, func(other *group, place uint64) int { return cmp.Compare(other.place, place) })
	if !there { // the group may come back to its old place
		l.groups = slices.Insert(l.groups, at, g)
	}
}

// first returns the group that waits longest; nil: the queue is empty.
func (l *namespaceQueue) first() *group {
	for len(l.groups) > 0 && l.groups[0].waitsIn != l {
		l.groups = l.groups[1:]
	}
	if len(l.groups) == 0 {
		return nil
	}
	return l.groups[0]
}

// take calls add with groups for one batch, queue by queue in turn, in the order of each queue. It ends when there is no room:
// most is the room of an empty batch, in keys, and add returns the room that is left. A group that does not fit lets groups of
// other queues pass, once: then it is the first of its batch, which may be larger than most. Whatever most is, take hands over
// at least one group if any waits, so a caller that repeats it empties the queue.
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
	if q.turns = append(passed, q.turns...); len(q.of) == 0 { // queues retain groups that have left
		q.namespaces, q.turns = map[string]*namespaceQueue{}, nil
	}
}

// earlier returns the earlier of two times, of which either may be unknown.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
