package model

import (
	"iter"
	"slices"
	"strings"
)

// Endings finds the names that a wildcard covers, without comparing the wildcard with each name. It has the names, each
// read backwards, sorted. So names with a common ending are neighbours.
type Endings []string

// EndingsOf returns the endings of the keys of a map.
func EndingsOf[V any](names map[string]V) Endings {
	out := make(Endings, 0, len(names))
	for name := range names {
		out = append(out, Backwards(name))
	}
	slices.Sort(out)
	return out
}

// Covered yields the names that a wildcard covers (Covers), in no order. The argument must begin with "*".
func (e Endings) Covered(wildcard string) iter.Seq[string] {
	return func(yield func(string) bool) {
		ending := Backwards(strings.TrimPrefix(wildcard, "*"))
		from, _ := slices.BinarySearch(e, ending)
		for _, text := range e[from:] {
			if !strings.HasPrefix(text, ending) {
				return
			}
			if name := Backwards(text); Covers(wildcard, name) && !yield(name) {
				return
			}
		}
	}
}
