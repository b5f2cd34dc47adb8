package ingest

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/object"
)

// few is how many objects are kept in a list: most Pods have one EndpointSlice that looks them up, and a map for each would be the largest part of
// what a Pod takes.
const few = 8

// set is a set of objects, small as a rule.
type set struct {
	list []object.ID
	all  map[object.ID]bool // in place of list, once there were more than a few
}

func (s *set) add(id object.ID) {
	switch {
	case s.all != nil:
		s.all[id] = true
	case slices.Contains(s.list, id):
	case len(s.list) < few:
		s.list = append(s.list, id)
	default:
		s.all = map[object.ID]bool{id: true}
		for _, one := range s.list {
			s.all[one] = true
		}
		s.list = nil
	}
}

// remove takes an object out, and says whether none is left.
func (s *set) remove(id object.ID) (empty bool) {
	delete(s.all, id)
	if i := slices.Index(s.list, id); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
	return len(s.all)+len(s.list) == 0
}

// each is its objects, in no order.
func (s *set) each() iter.Seq[object.ID] {
	return func(yield func(object.ID) bool) {
		if s == nil {
			return
		}
		for _, id := range s.list {
			if !yield(id) {
				return
			}
		}
		for id := range s.all {
			if !yield(id) {
				return
			}
		}
	}
}
