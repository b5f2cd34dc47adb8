package smallset

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// A set contains the added elements that were not removed, few or many.
func TestSet(t *testing.T) {
	s, want := &Set[string]{}, map[string]bool{}
	for i := range 5000 {
		id := fmt.Sprint(rand.IntN(1 + i/100))
		if rand.IntN(2) == 0 {
			s.Add(id)
			want[id] = true
		} else {
			delete(want, id)
			if empty := s.Remove(id); empty != (len(want) == 0) {
				t.Fatalf("empty: %v, want %v", empty, want)
			}
		}
		got := map[string]bool{}
		for id := range s.All() {
			if got[id] {
				t.Fatalf("%v is there twice", id)
			}
			got[id] = true
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	for range (*Set[string])(nil).All() {
		t.Error("none has some")
	}
}
