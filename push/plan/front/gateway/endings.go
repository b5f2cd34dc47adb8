package gateway

import (
	"iter"
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/model"
)

// endings finds the names that a wildcard covers, without comparing the wildcard with each name. It has the names, each
// read backwards, sorted. So names with a common ending are neighbours.
type endings []string

// endingsOf returns the endings of the keys of a map.
func endingsOf[V any](names map[string]V) endings {
	out := make(endings, 0, len(names))
	for name := range names {
		out = append(out, model.Backwards(name))
	}
	slices.Sort(out)
	return out
}

// covered yields the names that a wildcard covers (input.Covers), except the wildcard itself.
func (e endings) covered(wildcard string) iter.Seq[string] {
	return func(yield func(string) bool) {
		ending := model.Backwards(strings.TrimPrefix(wildcard, "*"))
		from, _ := slices.BinarySearch(e, ending)
		for _, text := range e[from:] {
			if !strings.HasPrefix(text, ending) {
				return
			}
			if name := model.Backwards(text); name != wildcard && input.Covers(wildcard, name) && !yield(name) {
				return
			}
		}
	}
}
