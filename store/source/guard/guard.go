// Package guard is the shrink guard of sources: where much vanishes at once and nothing explains it, it is far more likely that a source
// does not see everything (a mount that is gone, a checkout under way, a tool that stopped in the middle, a controller that fails) than
// that somebody meant it. What stood before is held then, until it is back, is explained, or an operator accepts the loss.
//
// Owns: what is held, what vanished lately.  Reads: store/object, store/origin, store/normal.  Never: a clock, a file, a socket; holds what something
// explains: the object's Namespace went too, an EndpointSlice's Service, Pods that are not ready.
//
// Source: issue 12, item 17.
package guard

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// minimum is how many objects of a kind, or endpoints of a slice, there must be for the guard to look at them alone.
const minimum = 4

// sumFrom is how many objects of a kind there must have been for what vanished in several looks to be added up. Of fewer people remove
// most by hand, one after the other, and mean it.
const sumFrom = 20

// sumFor is for how long what vanished is added up (issue 12, item 17).
const sumFor = 10 * time.Minute

// Objects is what a source knows at one look.
type Objects interface {
	// Emitted is every object that was emitted and not taken back, as it was emitted last.
	Emitted() iter.Seq2[object.ID, *object.Object]
	// Now is every object that is there now.
	Now() iter.Seq[object.ID]
	// Get is one object as it was emitted last (nil: it was not) and as it is now (nil: it is not there).
	Get(id object.ID) (emitted, now *object.Object)
}

// Counter is what Objects may have besides: how many there are of each kind (KindOf), emitted and now. Where they have it not all of them are
// walked for each look in which something vanished.
type Counter interface {
	Counts() (emitted, now map[object.ID]int)
}

// Guard decides about losses. It belongs to one goroutine.
type Guard struct {
	allowEmpty bool
	deleted    map[object.ID]bool           // emitted, and not there any more
	changed    map[object.ID]*object.Object // slices of which an older version stands; the newest
	memory     *Memory                      // what vanished
	// parents are the Namespaces and Services that vanished, and when: that explains what vanishes with them. There are never more than
	// were let go within sumFor.
	parents map[object.ID]time.Time
	shrunk  map[object.ID]shrunk // slices that lost endpoints which nothing explains, within sumFor
}

// New makes a guard that holds nothing; memory is what vanished before, nil: nothing is known. allowEmpty: it never holds anything.
func New(allowEmpty bool, memory *Memory) *Guard {
	if memory == nil {
		memory = &Memory{}
	}
	return &Guard{allowEmpty: allowEmpty, memory: memory, deleted: map[object.ID]bool{}, changed: map[object.ID]*object.Object{},
		parents: map[object.ID]time.Time{}, shrunk: map[object.ID]shrunk{}}
}

// look is what one judgement is about.
type look struct {
	Objects
	at      time.Time
	touched []object.ID
	gone    []object.ID       // emitted, not held, and not there any more
	slices  []object.ID       // EndpointSlices that are there, and may have lost endpoints
	before  map[object.ID]int // by kind and cluster: emitted and not held
	after   map[object.ID]int // by kind and cluster: there now
	pods    map[object.ID]map[string]bool
	ending  map[object.ID]bool // Namespaces that were asked about: they are terminating
}

// Judge decides, before the source emits anything, about the objects that are others than before, gone or there. Then Holds says what is
// not to be emitted. also are objects that were held before, and that are to be emitted too, as they are now.
func (g *Guard) Judge(at time.Time, o Objects, touched []object.ID) (also []object.ID) {
	if g.allowEmpty {
		return nil
	}
	l := &look{Objects: o, at: at, touched: touched}
	g.forget(at)
	g.sort(l)
	if len(l.gone) > 0 {
		l.count(g)
	}
	whole := l.wholeClusters()
	for _, id := range l.gone {
		if whole[id.Origin] {
			g.deleted[id] = true
		}
	}
	for n := range turns {
		if n == turn(object.ID{Kind: "EndpointSlice"}) {
			also = append(also, g.judgeSlices(l)...)
		}
		byKind := map[object.ID][]object.ID{}
		for _, id := range l.gone {
			if turn(id) == n && !whole[id.Origin] {
				byKind[KindOf(id)] = append(byKind[KindOf(id)], id)
			}
		}
		for kind, ids := range byKind {
			g.judge(l, kind, ids)
		}
	}
	return append(append(also, g.explainedLater(l)...), g.excused(l)...)
}

// sort finds out what the look is about. What is there again is held no more.
func (g *Guard) sort(l *look) {
	if len(g.deleted) > 0 {
		l.before = l.live(g) // before they come back
	}
	seen := map[object.ID]bool{}
	for _, id := range l.touched {
		emitted, now := l.Get(id)
		seen[id] = true
		switch {
		case now == nil:
			delete(g.changed, id)
			if emitted != nil && !g.deleted[id] {
				l.gone = append(l.gone, id)
			}
			continue
		case emitted != nil && id.Kind == "EndpointSlice":
			l.slices = append(l.slices, id)
		}
		delete(g.deleted, id)
		delete(g.parents, id)
	}
	for id := range g.changed { // what explains it may have come
		if !seen[id] {
			l.slices = append(l.slices, id)
		}
	}
	slices.SortFunc(l.slices, object.ID.Compare)
}

// count counts objects by kind and cluster.
func (l *look) count(g *Guard) {
	if l.before == nil {
		l.before = l.live(g)
	}
	if c, is := l.Objects.(Counter); is {
		_, l.after = c.Counts()
		return
	}
	l.after = map[object.ID]int{}
	for id := range l.Now() {
		l.after[KindOf(id)]++
	}
}

// live counts what was emitted and is not held.
func (l *look) live(g *Guard) map[object.ID]int {
	if c, is := l.Objects.(Counter); is {
		n, _ := c.Counts()
		for id := range g.deleted {
			n[KindOf(id)]--
		}
		return n
	}
	n := map[object.ID]int{}
	for id := range l.Emitted() {
		if !g.deleted[id] {
			n[KindOf(id)]++
		}
	}
	return n
}

// wholeClusters are the clusters of which everything goes.
func (l *look) wholeClusters() map[origin.Origin]bool {
	total, lost, all := map[origin.Origin]int{}, map[origin.Origin]int{}, map[origin.Origin]bool{}
	for kind, n := range l.before {
		total[kind.Origin] += n
	}
	for kind, n := range l.after {
		total[kind.Origin] += n
	}
	for _, id := range l.gone {
		lost[id.Origin]++
	}
	for of, n := range lost {
		all[of] = n == total[of] // nothing is there
	}
	return all
}

// forget drops what is too long ago to count.
func (g *Guard) forget(at time.Time) {
	maps.DeleteFunc(g.parents, func(_ object.ID, since time.Time) bool { return at.Sub(since) >= sumFor })
	maps.DeleteFunc(g.shrunk, func(_ object.ID, s shrunk) bool { return at.Sub(s.at) >= sumFor })
}

// explains says whether an object went with its namespace, which is gone or terminating (Kubernetes empties a namespace before it goes), or an
// EndpointSlice with its Service.
func (g *Guard) explains(l *look, o *object.Object) bool {
	if o.ID.Namespace == "" {
		return false
	}
	namespace := o.ID.SameOrigin(object.ID{Kind: "Namespace", Name: o.ID.Namespace})
	_, gone := g.parents[namespace]
	if !gone && o.ID.Kind == "EndpointSlice" {
		_, gone = g.parents[serviceOf(o)]
	}
	return gone || l.terminating(namespace)
}

// terminating says whether a Namespace is being deleted.
func (l *look) terminating(namespace object.ID) bool {
	is, known := l.ending[namespace]
	if known {
		return is
	}
	var parsed struct {
		Metadata struct{ DeletionTimestamp string }
	}
	if _, now := l.Get(namespace); now != nil && json.Unmarshal(now.JSON, &parsed) == nil {
		is = parsed.Metadata.DeletionTimestamp != ""
	}
	if l.ending == nil {
		l.ending = map[object.ID]bool{}
	}
	l.ending[namespace] = is
	return is
}

// turn is when a kind is judged: after those that explain its objects' end.
func turn(id object.ID) int {
	switch id.Kind {
	case "Namespace":
		return 0
	case "EndpointSlice":
		return 2
	case "Pod":
		return 3
	}
	return 1
}

const turns = 4

// KindOf is all objects of a kind in one cluster: the guard looks at each cluster for itself.
func KindOf(id object.ID) object.ID { return object.ID{Origin: id.Origin, Kind: id.Kind} }

// judge holds those of the objects of one kind and cluster that vanished in one look which nothing explains, if they are more than half of
// the kind (of a larger one: within ten minutes).
func (g *Guard) judge(l *look, kind object.ID, gone []object.ID) {
	var lost []object.ID
	for _, id := range gone {
		if emitted, _ := l.Get(id); !g.explains(l, emitted) {
			lost = append(lost, id)
		}
	}
	explained := len(gone) - len(lost)
	if explained > 0 {
		g.memory.explained(kind, explained)
	}
	before := l.before[kind] - explained
	was := g.memory.Before(l.at, kind, before)
	tooMany := was >= minimum && 2*l.after[kind] < was
	if tooMany && kind.Kind == "Pod" {
		ready := g.ready(l)
		lost = slices.DeleteFunc(lost, func(id object.ID) bool { return !ready[id] })
		g.memory.drop(kind) // which of them were ready is not known any more
	}
	switch {
	case tooMany:
		for _, id := range lost {
			g.deleted[id] = true
		}
	case len(lost) > 0:
		g.memory.Note(l.at, kind, before)
	}
	for _, id := range gone {
		if !g.deleted[id] && id.Group == "" && (kind.Kind == "Namespace" || kind.Kind == "Service") {
			g.parents[id] = l.at
		}
	}
}

// explainedLater takes what is held out of it that a Namespace or a Service explains which the source emitted only now: of each kind a cluster's
// changes come for themselves, and a namespace's own end comes last.
func (g *Guard) explainedLater(l *look) (gone []object.ID) {
	if len(g.deleted) == 0 || !slices.ContainsFunc(l.touched, func(id object.ID) bool {
		return id.Group == "" && (id.Kind == "Namespace" || id.Kind == "Service")
	}) {
		return nil
	}
	for id := range g.deleted {
		if emitted, _ := l.Get(id); emitted != nil && g.explains(l, emitted) {
			delete(g.deleted, id)
			gone = append(gone, id)
		}
	}
	slices.SortFunc(gone, object.ID.Compare)
	return gone
}

// excused takes the Pods out of what is held of which no EndpointSlice says any more that they are ready, after a change of these: the
// slices were written later. Where other kinds are held the source does not see everything, and slices say nothing.
func (g *Guard) excused(l *look) (gone []object.ID) {
	if len(g.deleted) == 0 || len(l.slices) == 0 && !slices.ContainsFunc(l.touched, func(id object.ID) bool { return id.Kind == "EndpointSlice" }) {
		return nil
	}
	for id := range g.deleted {
		if id.Kind != "Pod" {
			return nil
		}
	}
	ready := g.ready(l)
	for id := range g.deleted {
		if !ready[id] {
			delete(g.deleted, id)
			gone = append(gone, id)
		}
	}
	slices.SortFunc(gone, object.ID.Compare)
	return gone
}
