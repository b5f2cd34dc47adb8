//go:build !race

package ingest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

// amounts is how many problems are listed of the objects of a namespace, and how many more there are by the word of the list.
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

// With ten thousand objects that do not apply in one namespace, a list of a bounded length says so, and what is wrong in another one; it is put in order once,
// and again only when something that is listed has changed. One that is mended makes room for another; when all are, the list is empty.
func TestManyInvalidObjects(t *testing.T) {
	const n = 10000
	s := faultyState(t, n)
	s.Step(Objects{bad(t, "other", 1)})
	before := s.Problems()
	each := len(s.faults.of["other"].listed[bad(t, "other", 1).ID].problems)
	listed, more := amounts(before, "shop")
	if other, _ := amounts(before, "other"); other != each || listed > problem.MostOfNamespace || listed+more != n*each || len(before) > problem.MostOfNamespace+10 {
		t.Fatalf("%d problems; %d of shop and %d more; %d of other, want %d", len(before), listed, more, other, each)
	}
	if all := slices.Collect(s.faults.every()); len(all) != (n+1)*each || s.faults.rejected["VirtualService"] != n+1 {
		t.Errorf("%d problems in all, %v do not apply", len(all), s.faults.rejected)
	}
	sorted := s.faults.sorted
	good := put(t, vs("good", "1s"))
	for i := range 100 {
		s.Step(Objects{good, bad(t, "shop", n+i)})
		if got := len(s.Problems()); got != len(before) {
			t.Fatalf("%d problems, want %d", got, len(before))
		}
	}
	if s.faults.sorted != sorted {
		t.Errorf("put in order %d times for objects that have no problem, or that are not listed", s.faults.sorted-sorted)
	}
	for i := range n + 100 {
		s.Step(Objects{object.Event{Op: object.Delete, ID: bad(t, "shop", i).ID}})
		if left := n + 99 - i; left >= problem.MostOfNamespace && len(s.faults.of["shop"].listed) != problem.MostOfNamespace {
			t.Fatalf("%d objects are left, and %d are listed", left, len(s.faults.of["shop"].listed))
		}
	}
	s.Step(Objects{object.Event{Op: object.Delete, ID: bad(t, "other", 1).ID}})
	if got := s.Problems(); len(got)+s.faults.listed+len(s.faults.of)+len(s.faults.rejected) != 0 {
		t.Errorf("everything is mended: %v, %d listed, %d namespaces, %v", got, s.faults.listed, len(s.faults.of), s.faults.rejected)
	}
}

// Whatever changes in whatever order, no more is listed than may be, nothing that could be waits, and a namespace that has few is listed whole.
func TestListedFaults(t *testing.T) {
	f, r := newFaults(), rand.New(rand.NewPCG(3, 14))
	entries := map[object.ID]*entry{}
	for step := range 60000 {
		namespace := fmt.Sprint("n", r.IntN(30))
		if step > 20000 && r.IntN(200) == 0 {
			namespace = "small"
		}
		id := object.ID{Kind: "VirtualService", Namespace: namespace, Name: fmt.Sprint(r.IntN(300))}
		if namespace == "small" {
			id.Name = fmt.Sprint(r.IntN(5))
		}
		if entries[id] == nil {
			entries[id] = &entry{}
		}
		var problems []object.Problem
		if step < 50000 && r.IntN(4) > 0 || r.IntN(4) == 0 {
			problems = []object.Problem{{ID: id, Severity: problem.Error, Message: fmt.Sprint(r.IntN(3))}}
		}
		f.set(id, entries[id], problems)
		if step%499 > 0 {
			continue
		}
		listed, waiting, faulty, left := 0, 0, 0, 0
		for namespace, s := range f.of {
			listed, waiting, left = listed+len(s.listed), waiting+len(s.more), left+s.left
			if len(s.listed) > problem.MostOfNamespace || namespace == "small" && len(s.more) > 0 {
				t.Fatalf("step %d: %d listed of %s and %d not", step, len(s.listed), namespace, len(s.more))
			}
			if len(s.more) > 0 && len(s.listed) < problem.MostOfNamespace && f.listed < problem.Most {
				t.Fatalf("step %d: an object of %s waits, and there is room", step, namespace)
			}
		}
		for _, e := range entries {
			faulty += min(len(e.problems), 1)
		}
		if listed != f.listed || listed > problem.Most || listed+waiting != faulty || left != waiting || len(f.problems()) != listed || f.rejected["VirtualService"] != faulty {
			t.Fatalf("step %d: %d listed (%d counted, %d sorted), %d not, %d left of %d that are faulty, %v", step, listed, f.listed, len(f.problems()), waiting, left, faulty, f.rejected)
		}
	}
}

// One object has so many problems at most, errors first, and each so many bytes.
func TestProblemsOfOneObject(t *testing.T) {
	var all []object.Problem
	for i := range 1000 {
		p := object.Problem{Severity: problem.Warning, Message: strings.Repeat("é", maxText)}
		if i == 999 {
			p = object.Problem{Severity: problem.Error, Field: "spec.last"}
		}
		all = append(all, p)
	}
	got := bounded(object.ID{Name: "a"}, all)
	if len(got) != problem.MostOfObject || got[0].Field != "spec.last" || len(got[1].Message) > maxText || !strings.HasPrefix(got[len(got)-1].Message, "981 more problems") || all[0].Severity != problem.Warning {
		t.Errorf("%d problems: %v", len(got), got)
	}
	f, e := newFaults(), &entry{}
	if f.set(object.ID{Name: "a"}, e, all); len(e.problems) != problem.MostOfObject || f.count != (problem.Count{Errors: 1, Warnings: problem.MostOfObject - 1}) {
		t.Errorf("%d problems are kept of one object, %+v are counted", len(e.problems), f.count)
	}
	if f.set(object.ID{Name: "a"}, e, nil); f.count != (problem.Count{}) {
		t.Errorf("of no problems %+v are counted", f.count)
	}
}
