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

// Refuses reports whether the severity and the code of a problem make the validation webhook refuse the object. The
// result is true for severity Error, except with the code NotSupported (the field is valid) or Internal. The webhook
// also refuses objects with problems in normal.Result.Refused, which Refuses does not consider.
func Refuses(p object.Problem) bool {
	return p.Severity == problem.Error && p.Code != problem.NotSupported && p.Code != problem.Internal
}
