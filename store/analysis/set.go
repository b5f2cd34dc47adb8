package analysis

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/model"
)

// few is how many keys a set keeps as a list: most facts and watches have one reader, and a map is ten times as large.
const few = 8

// keys is a set of records' keys. Its zero value is empty.
type keys struct {
	list []model.Key
	many map[model.Key]struct{} // instead of the list
}

func (s *keys) add(key model.Key) {
	switch {
	case s.many != nil:
		s.many[key] = struct{}{}
	case slices.Contains(s.list, key):
	case len(s.list) < few:
		s.list = append(s.list, key)
	default:
		s.many = make(map[model.Key]struct{}, 2*few)
		for _, k := range append(s.list, key) {
			s.many[k] = struct{}{}
		}
		s.list = nil
	}
}

// remove takes a key away, and says whether the set is empty now.
func (s *keys) remove(key model.Key) bool {
	delete(s.many, key)
	if i := slices.Index(s.list, key); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
	return len(s.list)+len(s.many) == 0
}

func (s *keys) all() iter.Seq[model.Key] {
	return func(yield func(model.Key) bool) {
		if s == nil {
			return
		}
		for _, key := range s.list {
			if !yield(key) {
				return
			}
		}
		for key := range s.many {
			if !yield(key) {
				return
			}
		}
	}
}
