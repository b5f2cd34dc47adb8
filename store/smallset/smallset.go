// Package smallset has sets for structures that keep very many of them, almost all with one or two elements, where a map for each would take
// more memory than everything else (most Pods have one EndpointSlice that looks them up, most facts and selectors one reader).
//
// Owns: nothing.  Reads: nothing.  Never: is safe for concurrent use.
package smallset

import (
	"iter"
	"slices"
)

// few is how many elements are kept in a list.
const few = 8

// Set is a set. The zero Set is empty and ready for use; a nil one is empty.
type Set[K comparable] struct {
	list []K
	many map[K]struct{} // in place of list, once there were more than a few
}

// Add puts an element in, if it is not there.
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

// Remove takes an element out, and says whether none is left.
func (s *Set[K]) Remove(k K) (empty bool) {
	delete(s.many, k)
	if i := slices.Index(s.list, k); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
	return len(s.list)+len(s.many) == 0
}

// All is its elements, in no order. The set must not be changed meanwhile.
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
