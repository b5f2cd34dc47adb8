package layer

import (
	"iter"
	"maps"
)

// Table maps names to values. Copies of a table (Fork, Copy) share the part that they have in common. They share the
// values too, so values must never be changed in place. The zero Table is empty. A Table is not safe for concurrent
// use.
type Table[V any] struct {
	base map[string]*V // shared with other tables; never changed
	own  map[string]*V // differences from base; a nil value removes the name
	size int
}

// Get returns the value of a name, or nil if the table does not have the name.
func (t *Table[V]) Get(name string) *V {
	if v, ok := t.own[name]; ok {
		return v
	}
	return t.base[name]
}

// Put sets the value of a name. A nil value removes the name.
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

// Len returns the number of names.
func (t *Table[V]) Len() int { return t.size }

// All yields all names with their values, in any order. The table must not be changed meanwhile.
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

// Copy returns a table with the same content, which may be changed. The receiver must not be changed afterwards.
// Several goroutines may call Copy of one table.
func (t *Table[V]) Copy() Table[V] {
	switch {
	case 4*len(t.own) <= len(t.base):
		return Table[V]{t.base, maps.Clone(t.own), t.size}
	case len(t.base) == 0:
		return Table[V]{base: t.own, size: t.size}
	}
	return Table[V]{base: maps.Collect(t.All()), size: t.size}
}

// Fork returns an independent table with the same content. Unlike after Copy, the receiver may be changed afterwards.
// Fork itself may reorganise the receiver, so no other goroutine may use the receiver meanwhile.
func (t *Table[V]) Fork() Table[V] {
	if 4*len(t.own) > len(t.base) { // a new base costs less than many copies of a large difference
		if len(t.base) > 0 {
			t.own = maps.Collect(t.All())
		}
		t.base, t.own = t.own, nil
	}
	return Table[V]{t.base, maps.Clone(t.own), t.size}
}
