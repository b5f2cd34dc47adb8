package preview

import (
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// ActOf returns what a change does to an object, by its records before and after the change, which are ordered by key.
func ActOf(was, is []model.Record) Act {
	switch {
	case len(was) == 0 && len(is) > 0:
		return Created
	case len(was) > 0 && len(is) == 0:
		return Deleted
	case slices.EqualFunc(was, is, func(a, b model.Record) bool {
		return a.Meta().Key == b.Meta().Key && a.Meta().Hash == b.Meta().Hash
	}):
		return Unchanged
	}
	return Changed
}

// Refuses reports whether the validation webhook refuses an object for a problem. A valid field that this version does
// not support is no reason.
func Refuses(p object.Problem) bool {
	return p.Severity == problem.Error && p.Code != problem.NotSupported && p.Code != problem.Internal
}
