package input

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Problem describes an error or a warning about one object of the configuration.
type Problem = model.Problem

// Warning returns a problem with severity Warning, for an object that takes effect nevertheless. The parameter field is
// the path of the field, or "" for the whole object.
func Warning(key model.Key, code problem.Code, field, message string) Problem {
	return Problem{Key: key, Field: field, Code: code, Severity: problem.Warning, Message: message}
}

// WarningAbout returns a Warning with a message that names other objects (model.Messages).
func WarningAbout(key model.Key, code problem.Code, field, format string, args ...any) Problem {
	p := Warning(key, code, field, "")
	p.Message, p.Whole = model.Messages(key.Namespace, format, args...)
	return p
}

// NotFound returns a warning for the object with a key, whose field refers to a missing object. The severity is
// Warning.
func NotFound(key model.Key, field, message string) Problem {
	return Problem{Key: key, Field: field, Code: problem.NotFound, Analyzer: problem.ReferencedResourceNotFound,
		Severity: problem.Warning, Message: message}
}

// Problems maps the name of a unit (a part of the plan) to the problems of the unit. Planning a unit again replaces its
// problems. Lists are replaced, and never changed in place.
type Problems map[string][]Problem

// Set replaces the problems of a unit. An empty list removes the unit. The map keeps the list, which must not be
// changed afterwards.
func (p Problems) Set(unit string, found []Problem) {
	if len(found) == 0 {
		delete(p, unit)
		return
	}
	p[unit] = found
}

// Clone returns an independent copy of the map. The lists are shared.
func (p Problems) Clone() Problems { return maps.Clone(p) }

// Sorted returns all problems of the sets without duplicates, in the order of Problem.Compare. The result is nil if
// there are no problems. The caller owns the result.
func Sorted(sets ...Problems) []Problem {
	seen := map[Problem]bool{}
	var out []Problem
	for _, set := range sets {
		for _, list := range set {
			for _, one := range list {
				if !seen[one] {
					seen[one] = true
					out = append(out, one)
				}
			}
		}
	}
	slices.SortFunc(out, Problem.Compare)
	return out
}
