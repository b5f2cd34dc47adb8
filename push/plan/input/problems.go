package input

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Problem is a problem of an object that was found while planning.
type Problem = model.Problem

// Warning returns a problem of an object that takes effect nevertheless.
func Warning(key model.Key, code problem.Code, field, message string) Problem {
	return Problem{Key: key, Field: field, Code: code, Severity: problem.Warning, Message: message}
}

// NotFound returns a warning for an object that refers to a missing object.
func NotFound(key model.Key, field, message string) Problem {
	return Problem{Key: key, Field: field, Code: problem.NotFound, Analyzer: problem.ReferencedResourceNotFound,
		Severity: problem.Warning, Message: message}
}

// Problems maps the name of a unit to its problems, so that planning a unit again replaces its problems. Lists are
// replaced, never changed.
type Problems map[string][]Problem

// Set replaces the problems of a unit.
func (p Problems) Set(unit string, found []Problem) {
	if len(found) == 0 {
		delete(p, unit)
		return
	}
	p[unit] = found
}

// Clone returns an independent copy.
func (p Problems) Clone() Problems { return maps.Clone(p) }

// Sorted lists all problems, without duplicates, by object, field and message.
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
