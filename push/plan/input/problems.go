package input

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Problem is something that does not work as it was written, found while planning.
type Problem = model.Problem

// Warning is a problem of an object that applies all the same.
func Warning(key model.Key, code problem.Code, field, message string) Problem {
	return Problem{Key: key, Field: field, Code: code, Severity: problem.Warning, Message: message}
}

// NotFound is a warning of an object that names what is not there.
func NotFound(key model.Key, field, message string) Problem {
	return Problem{Key: key, Field: field, Code: problem.NotFound, Analyzer: problem.ReferencedResourceNotFound, Severity: problem.Warning, Message: message}
}

// Problems are kept by the unit that has them, so that planning a unit again replaces its problems. Lists are replaced, never changed.
type Problems map[string][]Problem

// Set replaces the problems of a unit.
func (p Problems) Set(unit string, found []Problem) {
	if len(found) == 0 {
		delete(p, unit)
		return
	}
	p[unit] = found
}

// Clone is a copy that the original's next Set does not change.
func (p Problems) Clone() Problems { return maps.Clone(p) }

// Sorted lists problems, each once, by object, field and message.
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
