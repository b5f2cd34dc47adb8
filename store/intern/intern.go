// Package intern gives equal lists equal handles, so that a struct which holds a list can be compared and be a map key.
//
// Owns: tables of live lists (weakly: what nobody holds is collected).  Reads: nothing of ours.  Never: changes a list.
package intern

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// List is a handle to an immutable list. Two lists from one Table are equal (==) exactly if their elements are, in
// order. The zero List is the empty list.
type List[T comparable] struct{ p *[]T }

// All is the elements; the caller must not change them.
func (l List[T]) All() []T {
	if l.p == nil {
		return nil
	}
	return *l.p
}

// Weak is a list that is not held: as long as nobody else holds it, it may be collected. The zero Weak is gone.
type Weak[T comparable] struct{ p weak.Pointer[[]T] }

// Weak gives up nothing of l, and holds nothing of it.
func (l List[T]) Weak() Weak[T] { return Weak[T]{weak.Make(l.p)} }

// List is the list again, while somebody else holds it; false: it was collected, or was the empty one.
func (w Weak[T]) List() (List[T], bool) {
	p := w.p.Value()
	return List[T]{p}, p != nil
}

// Len is the number of elements.
func (l List[T]) Len() int { return len(l.All()) }

// Table interns lists of one element type. Safe for concurrent use; the zero Table is ready.
type Table[T comparable] struct {
	mu    sync.Mutex // a leaf: nothing is called while it is held
	seed  maphash.Seed
	lists map[uint64][]weak.Pointer[[]T]
}

// List interns elements; the slice is copied where it is new.
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

// Size is the number of distinct lists that are held.
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
