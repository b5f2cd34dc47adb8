package layer

import (
	"iter"
	"maps"
)

// Table is a map by name of which scopes that are clones share what they have in common. The zero Table is empty. Values are
// never changed in place by whoever shares them.
type Table[V any] struct {
	base map[string]*V // shared with other tables: never changed
	own  map[string]*V // what differs from it; nil: not there
	size int
}

// Get is the value of a name; nil: there is none.
func (t *Table[V]) Get(name string) *V {
	if v, ok := t.own[name]; ok {
		return v
	}
	return t.base[name]
}

// Put sets the value of a name; nil takes it out.
func (t *Table[V]) Put(name string, v *V) {
	if t.Get(name) != nil {
		t.size--
	}
	if v != nil {
		t.size++
	}
	if t.base[name] == v {
		delete(t.own, name)
		return
	}
	if t.own == nil {
		t.own = map[string]*V{}
	}
	t.own[name] = v
}

// Len is the number of names that are there.
func (t *Table[V]) Len() int { return t.size }

// All iterates over the names that are there, in no order that means anything.
func (t *Table[V]) All() iter.Seq2[string, *V] {
	return func(yield func(string, *V) bool) {
		for name, v := range t.own {
			if v != nil && !yield(name, v) {
				return
			}
		}
		for name, v := range t.base {
			if _, other := t.own[name]; !other && !yield(name, v) {
				return
			}
		}
	}
}

// Fork is a second table of the same content; what is put into one is not in the other.
func (t *Table[V]) Fork() Table[V] {
	if 4*len(t.own) > len(t.base) { // more would be copied each time than is shared
		if len(t.base) > 0 {
			t.own = maps.Collect(t.All())
		}
		t.base, t.own = t.own, nil
	}
	return Table[V]{t.base, maps.Clone(t.own), t.size}
}
