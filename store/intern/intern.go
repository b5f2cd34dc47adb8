// Package intern makes lists comparable. Equal lists have equal handles (List). A struct with such a handle can be a
// map key.
//
// Owns: tables of lists, by weak references, so that unused lists are collected. Reads: no other package of Navarch.
// Never: changes a list.
package intern

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// List is a handle to an immutable list. Two Lists from one Table are equal (==) exactly if they have equal elements in
// the same order. The zero List is the empty list.
type List[T comparable] struct{ p *[]T }

// All returns the elements; nil for the empty list. The caller must not change them.
func (l List[T]) All() []T {
	if l.p == nil {
		return nil
	}
	return *l.p
}

// Weak is a weak reference to a list. The list may be collected once no List refers to it. The zero Weak refers to no
// list.
type Weak[T comparable] struct{ p weak.Pointer[[]T] }

// Weak returns a weak reference to l; for the empty list, the zero Weak.
func (l List[T]) Weak() Weak[T] { return Weak[T]{weak.Make(l.p)} }

// List returns the list. It returns false, and the empty List, if the list was collected or w is the zero Weak.
func (w Weak[T]) List() (List[T], bool) {
	p := w.p.Value()
	return List[T]{p}, p != nil
}

// Len returns the number of elements.
func (l List[T]) Len() int { return len(l.All()) }

// Table interns lists of one element type. It is safe for concurrent use. The zero Table is ready for use.
type Table[T comparable] struct {
	mu    sync.Mutex // no other lock is acquired while it is held
	seed  maphash.Seed
	lists map[uint64][]weak.Pointer[[]T]
}

// List returns the List with the given elements, in their order. It does not retain the slice. Without elements it
// returns the zero List.
func (t *Table[T]) List(elements ...T) List[T] {
	if len(elements) == 0 {
		return List[T]{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lists == nil {
		t.lists, t.seed = map[uint64][]weak.Pointer[[]T]{}, maphash.MakeSeed()
	}
	sum := t.hash(elements)
	for _, candidate := range t.lists[sum] {
		if p := candidate.Value(); p != nil && slices.Equal(*p, elements) {
			return List[T]{p}
		}
	}
	fresh := slices.Clone(elements)
	p := &fresh
	t.lists[sum] = append(t.lists[sum], weak.Make(p))
	runtime.AddCleanup(p, t.drop, sum)
	return List[T]{p}
}

// Size returns the number of distinct lists in the table, without the empty one. A collected list may count until its
// cleanup has run.
func (t *Table[T]) Size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, bucket := range t.lists {
		n += len(bucket)
	}
	return n
}

func (t *Table[T]) hash(elements []T) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	for _, e := range elements {
		maphash.WriteComparable(&h, e)
	}
	return h.Sum64()
}

// drop removes the collected lists of one bucket.
func (t *Table[T]) drop(sum uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	live := slices.DeleteFunc(t.lists[sum], func(p weak.Pointer[[]T]) bool { return p.Value() == nil })
	if len(live) == 0 {
		delete(t.lists, sum)
		return
	}
	t.lists[sum] = live
}
