//go:build !race

package ingest

import (
	"fmt"
	"slices"
	"testing"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// bad is a VirtualService with two problems.
func bad(t testing.TB, namespace string, i int) object.Event {
	return put(t, fmt.Sprintf("{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v%d, namespace: %s}, spec: {hosts: [], http: [{timeout: x}]}}", i, namespace))
}

// faultyState has so many VirtualServices that do not apply.
func faultyState(t testing.TB, n int) *State {
	s := NewState(Options{})
	var all Objects
	for i := range n {
		all = append(all, bad(t, "shop", i))
	}
	s.Step(append(all, synced))
	return s
}

// amounts counts the listed problems of the objects of a namespace, and the further problems that the list reports as a
// number.
func amounts(all []object.Problem, namespace string) (listed, more int) {
	for _, p := range all {
		switch {
		case p.ID.Kind == "Namespace" && p.ID.Name == namespace:
			if _, err := fmt.Sscanf(p.Message, "%d more problems", &more); err != nil {
				more = -1
			}
		case p.ID.Namespace == namespace:
			listed++
		}
	}
	return listed, more
}

// With ten thousand invalid objects in one namespace, the list of problems has a bounded length, counts the rest, and
// still contains the problems of another namespace. After all are repaired, the list is empty.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestManyInvalidObjects(t *testing.T) {
	const n = 10000
	s := faultyState(t, n)
	s.Step(Objects{bad(t, "other", 1)})
	before := s.Problems()
	each := len(s.inventory.faults.Of(bad(t, "other", 1).ID))
	listed, more := amounts(before, "shop")
	if other, _ := amounts(before, "other"); other != each || listed > problem.MostOfNamespace || listed+more != n*each || len(before) > problem.MostOfNamespace+10 {
		t.Fatalf("%d problems; %d of shop and %d more; %d of other, want %d", len(before), listed, more, other, each)
	}
	if all := slices.Collect(s.inventory.faults.Every()); len(all) != (n+1)*each || s.inventory.faults.Rejected()["VirtualService"] != n+1 {
		t.Errorf("%d problems in all, %v do not apply", len(all), s.inventory.faults.Rejected())
	}
	good := put(t, vs("good", "1s"))
	for i := range 100 {
		s.Step(Objects{good, bad(t, "shop", n+i)})
		if got := len(s.Problems()); got != len(before) {
			t.Fatalf("%d problems, want %d", got, len(before))
		}
	}
	for i := range n + 100 {
		s.Step(Objects{object.Event{Op: object.Delete, ID: bad(t, "shop", i).ID}})
	}
	s.Step(Objects{object.Event{Op: object.Delete, ID: bad(t, "other", 1).ID}})
	if got := s.Problems(); len(got)+s.inventory.faults.Objects() != 0 {
		t.Errorf("everything is mended: %v, %d listed", got, s.inventory.faults.Objects())
	}
}
