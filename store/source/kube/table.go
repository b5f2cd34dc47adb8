package kube

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
)

// name identifies an object within its kind.
type name struct{ namespace, name string }

// entry contains the last emitted state of an object (nil: not emitted, or the deletion was emitted) and its present
// state (nil: it does not exist). Usually both are the same pointer, which the ingester has too.
type entry struct{ emitted, now *object.Object }

// cost returns the memory of an entry, in bytes. It counts one state: the present state, or the emitted state if the
// object was deleted.
func (e entry) cost() int {
	switch o := cmp.Or(e.now, e.emitted); {
	case o == nil:
		return 0
	default:
		return len(o.JSON) + objectCost
	}
}

// table contains the objects of one kind. It does no I/O and is not safe for concurrent use.
type table struct {
	all   map[name]entry // objects that exist, or whose deletion is not emitted yet
	now   int            // number of existing objects
	bytes int            // memory of all entries (entry.cost), in bytes
}

// newTable returns an empty table.
func newTable() *table { return &table{all: map[name]entry{}} }

// set stores the present state of an object (nil: deleted), and reports whether it changed.
func (t *table) set(n name, now *object.Object) bool {
	e := t.all[n]
	if same(e.now, now) {
		return false
	}
	t.put(n, entry{e.emitted, now})
	return true
}

// same reports whether two states of an object are equal; nil is a missing object. UID, creation time and labels are
// compared in addition to the JSON, because the JSON of a Pod (podText) lacks them.
func same(a, b *object.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.JSON, b.JSON) && a.UID == b.UID && a.Created.Equal(b.Created) && maps.Equal(a.Labels, b.Labels)
}

// noteEmitted records the emitted state of an object (nil: deleted).
func (t *table) noteEmitted(n name, o *object.Object) { t.put(n, entry{o, t.all[n].now}) }

// put replaces an entry, and updates the fields now and bytes. An empty entry is removed.
func (t *table) put(n name, e entry) {
	before := t.all[n]
	t.now += present(e.now) - present(before.now)
	t.bytes += e.cost() - before.cost()
	if t.all[n] = e; e == (entry{}) {
		delete(t.all, n)
	}
}

// present returns 1 for an existing object, 0 for nil.
func present(o *object.Object) int {
	if o == nil {
		return 0
	}
	return 1
}

// absent returns the existing objects whose names a complete list lacks, sorted.
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

// get returns the last emitted state of an object (nil: not emitted) and its present state (nil: it does not exist).
// The caller has locked Source.mu.
func (s *Source) get(id object.ID) (emitted, now *object.Object) {
	if f := s.of(id); f != nil && id.Origin == s.origin {
		e := f.table.all[name{id.Namespace, id.Name}]
		return e.emitted, e.now
	}
	return nil, nil
}
