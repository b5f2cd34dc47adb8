package input

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
)

// Problem is something that does not work as it was written, found while planning.
type Problem struct {
	Key     model.Key // the object that is at fault
	Field   string
	Message string
}

// String is "Kind namespace/name: field: message".
func (p Problem) String() string {
	if p.Field == "" {
		return fmt.Sprintf("%v: %s", p.Key, p.Message)
	}
	return fmt.Sprintf("%v: %s: %s", p.Key, p.Field, p.Message)
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
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return out
}

// ProblemOf reads what a builder says: "Kind namespace/name: field: message". Where it names no object or no field, blame
// and its spec are at fault.
func ProblemOf(err error, blame model.Key) Problem {
	p := Problem{blame, "spec", err.Error()}
	if object, rest, ok := strings.Cut(p.Message, ": "); ok {
		if key, ok := parseKey(object); ok {
			p.Key, p.Message = key, rest
		}
	}
	if field, rest, ok := strings.Cut(p.Message, ": "); ok && strings.HasPrefix(field, "spec.") && !strings.Contains(field, " ") {
		p.Field, p.Message = field, rest
	}
	return p
}

// parseKey is the inverse of Key.String.
func parseKey(s string) (model.Key, bool) {
	kind, path, ok := strings.Cut(s, " ")
	if !ok {
		return model.Key{}, false
	}
	key, err := model.ParsePath(kind + "/" + path)
	return key, err == nil && !strings.Contains(path, " ")
}
