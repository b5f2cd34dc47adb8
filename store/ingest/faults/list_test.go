package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Whatever changes in whatever order, no more is listed than may be, nothing that could be waits, and a namespace with
// few faulty objects is listed in full.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestListed(t *testing.T) {
	listing := map[object.Problem]bool{} // as the List reports its changes
	l, r := New(func(_ string, gone, come []object.Problem) {
		for _, p := range gone {
			delete(listing, p)
		}
		for _, p := range come {
			listing[p] = true
		}
	}), rand.New(rand.NewPCG(3, 14))
	all := map[object.ID][]object.Problem{}
	for step := range 60000 {
		namespace := fmt.Sprint("n", r.IntN(30))
		if step > 20000 && r.IntN(200) == 0 {
			namespace = "small"
		}
		id := object.ID{Kind: "VirtualService", Namespace: namespace, Name: fmt.Sprint(r.IntN(300))}
		if namespace == "small" {
			id.Name = fmt.Sprint(r.IntN(5))
		}
		var problems []object.Problem
		if step < 50000 && r.IntN(4) > 0 || r.IntN(4) == 0 {
			problems = []object.Problem{{ID: id, Severity: problem.Error, Message: fmt.Sprint(r.IntN(3))}}
		}
		if all[id] = problems; problems == nil {
			delete(all, id)
		}
		var was bool
		if s := l.namespaces[namespace]; s != nil {
			_, was = s.listed[id]
		}
		if l.Set(id, problems); was && problems != nil {
			if _, is := l.namespaces[namespace].listed[id]; !is {
				t.Fatalf("step %d: a changed object of %s is not listed any more", step, namespace)
			}
		}
		if step%499 > 0 {
			continue
		}
		listed, waiting, left := 0, 0, 0
		for namespace, s := range l.namespaces {
			listed, waiting, left = listed+len(s.listed), waiting+len(s.more), left+s.left
			if len(s.listed) > problem.MostOfNamespace || namespace == "small" && len(s.more) > 0 {
				t.Fatalf("step %d: %d listed of %s and %d not", step, len(s.listed), namespace, len(s.more))
			}
			if len(s.more) > 0 && len(s.listed) < problem.MostOfNamespace && l.listed < problem.Most {
				t.Fatalf("step %d: an object of %s waits, and there is room", step, namespace)
			}
		}
		if listed != l.Objects() || listed > problem.Most || listed+waiting != len(all) || left != waiting ||
			len(listing) != listed || l.Rejected()["VirtualService"] != len(all) {
			t.Fatalf("step %d: %d listed (%d counted, %d reported), %d not, %d left of %d that are faulty, %v",
				step, listed, l.listed, len(listing), waiting, left, len(all), l.rejected)
		}
		for id, want := range all {
			if got := l.Of(id); len(got) != 1 || got[0] != want[0] {
				t.Fatalf("step %d: %v has %v, want %v", step, id, got, want)
			}
		}
	}
}

// One object has a bounded number of problems, errors first, and each a bounded number of bytes.
// Promise: security-limits.md#api-servers-of-other-clusters
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
	if len(got) != problem.MostOfObject || got[0].Field != "spec.last" || len(got[1].Message) > maxText ||
		!strings.HasPrefix(got[len(got)-1].Message, "981 more problems") || all[0].Severity != problem.Warning {
		t.Errorf("%d problems: %v", len(got), got)
	}
	l, a := New(func(string, []object.Problem, []object.Problem) {}), object.ID{Name: "a"}
	if l.Set(a, all); len(l.Of(a)) != problem.MostOfObject || l.Count() != (problem.Count{Errors: 1, Warnings: problem.MostOfObject - 1}) {
		t.Errorf("%d problems are kept of one object, %+v are counted", len(l.Of(a)), l.Count())
	}
	if l.Set(a, nil); l.Count() != (problem.Count{}) {
		t.Errorf("of no problems %+v are counted", l.Count())
	}
}

// With ten thousand faulty objects in one namespace, only changes of listed problems are reported. One object that is
// mended makes room for another.
func TestManyFaultyObjects(t *testing.T) {
	const n = 10000
	listed, reported := 0, 0
	l := New(func(_ string, gone, come []object.Problem) {
		listed += len(come) - len(gone)
		reported += len(come) + len(gone)
	})
	id := func(i int) object.ID {
		return object.ID{Kind: "VirtualService", Namespace: "shop", Name: fmt.Sprintf("v%05d", i)}
	}
	wrong := []object.Problem{{Severity: problem.Error, Message: "wrong"}}
	for i := range n {
		l.Set(id(i), wrong)
	}
	l.Set(object.ID{Kind: "VirtualService", Namespace: "other", Name: "v"}, wrong)
	if listed != problem.MostOfNamespace+1 {
		t.Fatalf("%d are listed", listed)
	}
	before := reported
	for i := range 100 {
		l.Set(id(n+i), wrong)
		l.Set(object.ID{Kind: "VirtualService", Namespace: "shop", Name: "good"}, nil)
	}
	if reported != before {
		t.Errorf("%d changes of objects that have no problem, or that are not listed", reported-before)
	}
	for i := range n + 100 {
		l.Set(id(i), nil)
		if left := n + 99 - i; left >= problem.MostOfNamespace && len(l.namespaces["shop"].listed) != problem.MostOfNamespace {
			t.Fatalf("%d objects are left, and %d are listed", left, len(l.namespaces["shop"].listed))
		}
	}
	l.Set(object.ID{Kind: "VirtualService", Namespace: "other", Name: "v"}, nil)
	if listed+l.Objects()+len(l.namespaces)+len(l.rejected) != 0 {
		t.Errorf("everything is mended: %d reported, %d listed, %d namespaces, %v", listed, l.listed, len(l.namespaces), l.rejected)
	}
}
