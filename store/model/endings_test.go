package model

import (
	"maps"
	"slices"
	"testing"
)

// The names that a wildcard covers are those that a comparison with each name finds.
func TestEndings(t *testing.T) {
	names := map[string]bool{"*": true, "a.test": true, "b.a.test": true, "*.a.test": true, "*-a.test": true, "x-a.test": true, "ba.test": true,
		"c.example": true, "*.test": true, "test": true}
	e := EndingsOf(names)
	for _, wildcard := range []string{"*", "*.test", "*.a.test", "*-a.test", "*.none", "*.example"} {
		var want []string
		for name := range maps.Keys(names) {
			if Covers(wildcard, name) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if got := slices.Sorted(e.Covered(wildcard)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", wildcard, got, want)
		}
	}
}
