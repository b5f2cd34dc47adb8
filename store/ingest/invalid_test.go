package ingest

import (
	"fmt"
	"testing"

	"navarch.io/navarch/store/object"
)

// faultyState has so many VirtualServices that do not apply.
func faultyState(t testing.TB, n int) *State {
	s := NewState(Options{})
	var all Objects
	for i := range n {
		all = append(all, put(t, fmt.Sprintf("{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v%d, namespace: shop}, spec: {hosts: [], http: [{timeout: x}]}}", i)))
	}
	s.Step(append(all, synced))
	return s
}

// With ten thousand objects that do not apply, what is wrong is put in order once, and again only when that has changed.
func TestManyInvalidObjects(t *testing.T) {
	s := faultyState(t, 10000)
	before := s.Problems()
	if len(before) < 10000 {
		t.Fatalf("%d problems", len(before))
	}
	sorted := s.sorted
	good := put(t, vs("good", "1s"))
	for range 100 {
		s.Step(Objects{good})
		if n := len(s.Problems()); n != len(before) {
			t.Fatalf("%d problems, want %d", n, len(before))
		}
	}
	if s.sorted != sorted {
		t.Errorf("put in order %d times for objects that have no problem", s.sorted-sorted)
	}
	s.Step(Objects{object.Event{Op: object.Delete, ID: put(t, "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v5, namespace: shop}}").ID}})
	if n := len(s.Problems()); n >= len(before) || s.sorted != sorted+1 {
		t.Errorf("one is gone: %d problems of %d, put in order %d times", n, len(before), s.sorted-sorted)
	}
}
