package routes

import (
	"fmt"
	"testing"
)

// A long list of domains is searched by a set, which is made once in a step and forgotten after it.
func TestLongListsAreSearchedBySets(t *testing.T) {
	var domains []string
	for i := range 100 * fewDomains {
		domains = append(domains, fmt.Sprint("d", i))
	}
	short, long := strs.List(domains[:fewDomains]...), strs.List(domains...)
	table := &Table{}
	for i, d := range append(domains, "other") {
		if got, want := table.contains(short, d), i < fewDomains; got != want {
			t.Errorf("%s in the short list: %v", d, got)
		}
		if got, want := table.contains(long, d), d != "other"; got != want {
			t.Errorf("%s in the long list: %v", d, got)
		}
		if len(table.sets) != 1 {
			t.Fatalf("%d sets", len(table.sets))
		}
	}
	if table.Done(); len(table.sets) > 0 {
		t.Error("the set is kept after the step")
	}
}
