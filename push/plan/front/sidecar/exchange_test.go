package sidecar

import (
	"maps"
	"slices"
	"testing"
)

// Unchanged traffic of a host leaves its listener unmarked, so that a new or removed endpoint of a headless service
// plans no listeners of other endpoints. Traffic that appears twice is counted twice.
func TestExchangeMarksWhatDiffers(t *testing.T) {
	at := func(addresses ...string) (all []traffic) {
		for _, a := range addresses {
			all = append(all, traffic{port: 80, http: true}.at(a))
		}
		return all
	}
	for name, c := range map[string]struct {
		was, now []traffic
		changed  []string
		left     map[string]int
	}{
		"one comes":     {at("a", "b"), at("a", "b", "c"), []string{"c_80"}, map[string]int{"a_80": 1, "b_80": 1, "c_80": 1}},
		"one goes":      {at("a", "b"), at("b"), []string{"a_80"}, map[string]int{"b_80": 1}},
		"other order":   {at("a", "b"), at("b", "a"), nil, map[string]int{"a_80": 1, "b_80": 1}},
		"one of twice":  {at("a", "a", "b"), at("b", "a"), []string{"a_80"}, map[string]int{"a_80": 1, "b_80": 1}},
		"twice at once": {nil, at("a", "a"), []string{"a_80"}, map[string]int{"a_80": 2}},
	} {
		ls := newListeners(&scope{own: &editor{}})
		ls.exchange("host", nil, c.was, func() {})
		clear(ls.changed)
		ls.exchange("host", c.was, c.now, func() {})
		if got := slices.Sorted(maps.Keys(ls.changed)); !slices.Equal(got, c.changed) {
			t.Errorf("%s: planned again are %v, want %v", name, got, c.changed)
		}
		left := map[string]int{}
		for name, l := range ls.table.All() {
			for _, http := range l.http {
				left[name] += http.hosts
			}
		}
		if !maps.Equal(left, c.left) {
			t.Errorf("%s: left is %v, want %v", name, left, c.left)
		}
	}
}
