package kube

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
)

// name is what an object of a kind is known by.
type name struct{ namespace, name string }

// entry is one object: as it was emitted last (nil: it was not), and as it is now (nil: it is not there). Mostly they are the same, which the
// ingester has too.
type entry struct{ emitted, now *object.Object }

// cost is what an entry takes in memory, in bytes: that it changes is counted once.
func (e entry) cost() int {
	switch o := cmp.Or(e.now, e.emitted); {
	case o == nil:
		return 0
	default:
		return len(o.JSON) + objectCost
	}
}

// table is the objects of one kind. It is pure, and its owner's.
type table struct {
	all   map[name]entry
	now   int // how many of all are there
	bytes int // what all cost
}

func newTable() *table { return &table{all: map[name]entry{}} }

// set takes an object as it is now (nil: it is not there); false: that is how it was.
func (t *table) set(n name, now *object.Object) bool {
	e := t.all[n]
	if same(e.now, now) {
		return false
	}
	t.put(n, entry{e.emitted, now})
	return true
}

// same says whether two objects of one name are equal; nil is one that is not there. The text of a Pod is without what else is compared (podText).
func same(a, b *object.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.JSON, b.JSON) && a.UID == b.UID && a.Created.Equal(b.Created) && maps.Equal(a.Labels, b.Labels)
}

// noteEmitted notes what is emitted of an object (nil: that it is gone).
func (t *table) noteEmitted(n name, o *object.Object) { t.put(n, entry{o, t.all[n].now}) }

func (t *table) put(n name, e entry) {
	before := t.all[n]
	t.now += present(e.now) - present(before.now)
	t.bytes += e.cost() - before.cost()
	if t.all[n] = e; e == (entry{}) {
		delete(t.all, n)
	}
}

func present(o *object.Object) int {
	if o == nil {
		return 0
	}
	return 1
}

// absent is what is there by what is known, and not by a complete list, sorted.
func (t *table) absent(there map[name]bool) (gone []name) {
	for n, e := range t.all {
		if e.now != nil && !there[n] {
			gone = append(gone, n)
		}
	}
	slices.SortFunc(gone, func(a, b name) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	return gone
}

// get is an object as it was emitted last (nil: it was not), and as it is now (nil: it is not there). With the lock.
func (s *Source) get(id object.ID) (emitted, now *object.Object) {
	if f := s.of(id); f != nil && id.Origin == s.origin {
		e := f.table.all[name{id.Namespace, id.Name}]
		return e.emitted, e.now
	}
	return nil, nil
}
