package ingest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"navarch.io/navarch/store/object"
)

// A set has what was added and not removed, few or many.
func TestSet(t *testing.T) {
	s, want := &set{}, map[object.ID]bool{}
	for i := range 5000 {
		id := object.ID{Name: fmt.Sprint(rand.IntN(1 + i/100))}
		if rand.IntN(2) == 0 {
			s.add(id)
			want[id] = true
		} else {
			delete(want, id)
			if empty := s.remove(id); empty != (len(want) == 0) {
				t.Fatalf("empty: %v, want %v", empty, want)
			}
		}
		got := map[object.ID]bool{}
		for id := range s.each() {
			if got[id] {
				t.Fatalf("%v is there twice", id)
			}
			got[id] = true
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	for range (*set)(nil).each() {
		t.Error("none has some")
	}
}
