package ingest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// After any changes, in few or very many namespaces, the listed problems are those of Bounded, in the same order.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestShownIsBounded(t *testing.T) {
	for _, c := range []struct{ namespaces, objects, changes int }{{1, 5, 10}, {3, 40, 40}, {12, 300, 400}, {60, 150, 600}, {2300, 2, 2400}} {
		r := rand.New(rand.NewPCG(2, uint64(c.namespaces)))
		s, present := newShown(), map[object.ID][]object.Problem{}
		some := func(by string) []object.Problem {
			id := object.ID{Kind: "VirtualService", Namespace: fmt.Sprintf("n%04d", r.IntN(c.namespaces)), Name: fmt.Sprint(by, r.IntN(c.objects))}
			if r.IntN(20) == 0 {
				id = object.ID{Kind: "Namespace", Name: id.Namespace}
			}
			all := make([]object.Problem, r.IntN(4)*r.IntN(4)*r.IntN(4))
			for i := range all {
				all[i] = object.Problem{ID: id, Message: fmt.Sprint(by, i, r.IntN(2)), Code: problem.NotFound, Severity: problem.Warning}
				if r.IntN(3) == 0 {
					all[i].Severity = problem.Error
				}
			}
			return append(all, object.Problem{ID: id, Message: by, Code: problem.NotFound, Severity: problem.Warning})
		}
		most := 0
		for step := range 12 {
			for range c.changes {
				one := some("o")
				if step%4 == 3 || r.IntN(3) == 0 {
					s.faults.Set(one[0].ID, nil)
				} else {
					s.faults.Set(one[0].ID, one)
				}
				if step < 2 {
					continue
				}
				found := some("a")
				id := found[0].ID
				if step > 9 || r.IntN(3) == 0 {
					found = nil
				}
				s.replace(ofAnalysis, present[id], found)
				present[id] = found
			}
			if step > 3 {
				s.set([]finder{ofState, ofMisuse}[r.IntN(2)], some("s"))
			}
			shownAsBounded(t, s, fmt.Sprint(c, " step ", step))
			most = max(most, s.counted)
		}
		if (most > problem.Most) != (c.namespaces > problem.Most) || c.namespaces > 3 && most == 0 {
			t.Errorf("%v: problems of %d namespaces are counted", c, most)
		}
		s.reset(ofAnalysis)
		shownAsBounded(t, s, fmt.Sprint(c, " without analysis"))
	}
}

// shownAsBounded compares the listed problems, and the counts, with the problems of all finders.
func shownAsBounded(t *testing.T, s *shown, what string) {
	t.Helper()
	got := s.problems()
	var others []object.Problem
	for _, by := range []finder{ofState, ofAnalysis, ofMisuse} {
		others = slices.AppendSeq(others, s.of(by))
	}
	want := slices.SortedFunc(slices.Values(slices.AppendSeq(slices.Clone(others), s.of(ofObjects))), compare)
	if len(others) > 0 || s.faults.Objects() > problem.Most/problem.MostOfObject {
		want = Bounded(want, s.faults.Left())
	}
	if !slices.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Fatalf("%s: %d problems, want %d; from the %dth: %v\nwant %v", what, len(got), len(want), i, got[i:min(len(got), i+1)], want[i:min(len(want), i+1)])
	}
	var count problem.Count
	errors := map[object.ID]int{}
	for _, p := range others {
		if count.Add(p.Severity, 1); p.Severity == problem.Error {
			errors[p.ID]++
		}
	}
	if count != s.count || !maps.Equal(errors, s.errors) {
		t.Fatalf("%s: counted %+v, want %+v; %d objects with errors, want %d", what, s.count, count, len(s.errors), len(errors))
	}
}

// among returns a function that applies events, checks and publishes, after 3,000 VirtualServices in some namespaces,
// each of which names a missing service, and the VirtualService i with a destination host.
func among(t testing.TB, namespaces int) (l *Loop, step func(...object.Event), route func(i int, host string) object.Event) {
	route = func(i int, host string) object.Event {
		return put(t, fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v%d, namespace: n%d}\n"+
			"spec: {hosts: [h%d.test], http: [{route: [{destination: {host: %s}}]}]}", i, i%namespaces, i, host))
	}
	l = New(Config{Store: &memory{}})
	step = func(events ...object.Event) {
		l.state.Step(Emits{{Objects: events}})
		l.check()
		l.publish()
	}
	events := []object.Event{synced}
	for i := range 3000 {
		events = append(events, route(i, "missing"))
	}
	step(events...)
	return l, step, route
}

// An edit of one VirtualService among 3,000 with problems compares only problems that its namespace may list with the
// bounds.
func TestEditAmongProblems(t *testing.T) {
	for _, c := range []struct{ namespaces, most int }{{50, 60}, {1, problem.MostOfNamespace}} {
		l, step, route := among(t, c.namespaces)
		s, before := l.state.inventory.shown, l.Problems()
		was := slices.Clone(before)
		examined := s.examined
		step(route(0, "other"))
		if n := s.examined - examined; n == 0 || n > uint64(c.most) {
			t.Errorf("%d namespaces: %d problems were compared with the bounds, of at most %d", c.namespaces, n, c.most)
		}
		if slices.Equal(l.Problems(), was) || !slices.Equal(before, was) || l.ProblemCount().Warnings != 3000 {
			t.Errorf("%d namespaces: the list is old, or an earlier list has changed; %+v", c.namespaces, l.ProblemCount())
		}
		now := &l.Problems()[0]
		step(route(1, "missing"))
		if n := s.examined - examined; now != &l.Problems()[0] || n > uint64(c.most) {
			t.Errorf("%d namespaces: an edit that changes no problem made another list", c.namespaces)
		}
	}
}

// A problem between objects has the location of its object, also once the same object is at another location.
func TestProblemsFollowLocations(t *testing.T) {
	l, step, route := among(t, 50)
	e := route(7, "missing")
	moved := *e.Object
	moved.Location = "elsewhere.yaml#1"
	e.Object = &moved
	step(e, route(8, "other"))
	var at []string
	for p := range l.state.inventory.shown.of(ofAnalysis) {
		if p.ID == e.ID {
			at = append(at, p.Location)
		}
	}
	if !slices.Equal(at, []string{"elsewhere.yaml#1"}) {
		t.Errorf("the problems are at %q", at)
	}
}

// BenchmarkEditAmongProblems edits one of 3,000 VirtualServices with problems.
func BenchmarkEditAmongProblems(b *testing.B) {
	_, step, route := among(b, 50)
	var edits [2][]object.Event
	for i := range 200 {
		for k := range edits {
			edits[k] = append(edits[k], route(i*14, fmt.Sprint("missing", k)))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		step(edits[i/200%2][i%200])
	}
}
