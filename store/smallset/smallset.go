// Package smallset provides a set type for data structures with very many sets, most of which have one or two elements.
// A map for each set would use more memory than all other data.
//
// Owns: nothing. Reads: nothing. Never: locks a set, so a set is not safe for concurrent use.
package smallset

import (
	"iter"
	"slices"
)

// few is the largest number of elements for which a Set uses a list.
const few = 8

// Set is a set of elements. The zero Set is empty and ready for use. On a nil *Set only All may be called. A Set is not
// safe for concurrent use.
type Set[K comparable] struct {
	list []K
	many map[K]struct{} // replaces list once the set has more than 8 elements (few)
}

// Has reports whether the set has an element.
func (s *Set[K]) Has(k K) bool {
	_, is := s.many[k]
	return is || slices.Contains(s.list, k)
}

// Add adds an element, if it is absent.
func (s *Set[K]) Add(k K) {
	switch {
	case s.many != nil:
		s.many[k] = struct{}{}
	case slices.Contains(s.list, k):
	case len(s.list) < few:
		s.list = append(s.list, k)
	default:
		s.many = map[K]struct{}{k: {}}
		for _, one := range s.list {
			s.many[one] = struct{}{}
		}
		s.list = nil
	}
}

// Remove removes an element, if it is present, and reports whether the set is empty afterwards.
func (s *Set[K]) Remove(k K) (empty bool) {
	delete(s.many, k)
	if i := slices.Index(s.list, k); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
	return len(s.list)+len(s.many) == 0
}

// All yields the elements in no particular order. A nil *Set yields no elements. The set must not be changed during the
// iteration.
func (s *Set[K]) All() iter.Seq[K] {
	return func(yield func(K) bool) {
		if s == nil {
			return
		}
		for _, k := range s.list {
			if !yield(k) {
				return
			}
		}
		for k := range s.many {
			if !yield(k) {
				return
			}
		}
	}
}
