package preview

import (
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// ActOf returns the effect of a change on an object, by its records before and after the change. Both lists must be
// sorted by key. It never returns Refused. Without any records it returns Unchanged.
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

// Refuses reports whether the validation webhook refuses an object because of a problem. It refuses an object for
// each problem of severity Error, except those with the code NotSupported (the field is valid) or Internal.
func Refuses(p object.Problem) bool {
	return p.Severity == problem.Error && p.Code != problem.NotSupported && p.Code != problem.Internal
}
