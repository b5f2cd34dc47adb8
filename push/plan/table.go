package plan

import (
	"iter"
	"maps"
)

// table is a map by name of which siblings share what they have in common. The zero table is empty.
type table[V any] struct {
	base map[string]*V // shared with other tables: never changed
	own  map[string]*V // what differs from it; nil: not there
	size int
}

// get is the value of a name; nil: there is none.
func (t *table[V]) get(name string) *V {
	if v, ok := t.own[name]; ok {
		return v
	}
	return t.base[name]
}

// put sets the value of a name; nil takes it out.
func (t *table[V]) put(name string, v *V) {
	if t.get(name) != nil {
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

// all iterates over the names that are there, in no order that means anything.
func (t *table[V]) all() iter.Seq2[string, *V] {
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

// fork is a second table of the same content; what is put into one is not in the other.
func (t *table[V]) fork() table[V] {
	if 4*len(t.own) > len(t.base) { // more would be copied each time than is shared
		if len(t.base) > 0 {
			t.own = maps.Collect(t.all())
		}
		t.base, t.own = t.own, nil
	}
	return table[V]{t.base, maps.Clone(t.own), t.size}
}
