package ingest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// publish makes problems and counters readable for other goroutines.
func (l *Loop) publish() {
	l.reportNeeded()
	all := l.state.listed(l.between)
	changed := !slices.Equal(all, l.Problems())
	if changed {
		l.problems.Store(&all)
	}
	if v := l.state.problemsVersion(); changed || v != l.counted {
		l.counted = v
		l.version.Add(1)
		l.publishCounts()
	}
	l.publishRemovals()
	l.state.inventory.budgets.showTenants()
	l.tenants.publish(l.state)
	l.stored.Store(l.state.storedLevel())
	waiting := l.state.writes.queue.waits
	l.settled.Store(l.state.leading && l.state.phase == ready && waiting == 0)
	obs.Waiting.Set(float64(waiting))
	stats := l.state.Stats()
	if before := l.Stats(); stats != before {
		obs.Writes.WithLabelValues("put").Add(float64(stats.Puts - before.Puts))
		obs.Writes.WithLabelValues("delete").Add(float64(stats.Deletes - before.Deletes))
		l.stats.Store(&stats)
	}
	for _, answer := range l.ask {
		answer()
	}
	l.ask = nil
}

// publishCounts counts the problems of all objects, and sets the metric of objects that do not apply.
func (l *Loop) publishCounts() {
	f := l.state.inventory.faults
	more := append(l.state.more(), l.between...)
	count := f.Count()
	rejected, seen := f.Rejected(), map[object.ID]bool{}
	for _, p := range more {
		count.Add(p.Severity, 1)
		if p.Severity == problem.Error && !seen[p.ID] && !f.Rejects(p.ID) {
			seen[p.ID] = true
			rejected[p.ID.Kind]++
		}
	}
	l.count.Store(&count)
	obs.RejectedConfigs.Reset()
	for kind, n := range rejected {
		obs.RejectedConfigs.WithLabelValues(kind).Set(float64(n))
	}
}

// problemsVersion differs where problems differ, also problems that are not listed.
type problemsVersion struct {
	faults, ledger    uint64
	refused, unsealed int
}

func (s *State) problemsVersion() problemsVersion {
	v := problemsVersion{faults: s.inventory.faults.Version(), refused: len(s.writes.refused), unsealed: len(s.sealing.failed)}
	if b := s.inventory.budgets; b != nil {
		v.ledger = b.ledger.version
	}
	return v
}

// Problems returns the problems of objects and between them, sorted, as many as are listed (Bounded). Problems of files
// are the source's.
func (l *Loop) Problems() []object.Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Stats counts finished work.
func (l *Loop) Stats() Stats {
	if s := l.stats.Load(); s != nil {
		return *s
	}
	return Stats{}
}

// ProblemCount counts all problems, also those that Problems does not list.
func (l *Loop) ProblemCount() problem.Count {
	if c := l.count.Load(); c != nil {
		return *c
	}
	return problem.Count{}
}

// everyProblem is the problems of all objects at a version.
type everyProblem struct {
	version uint64
	all     []object.Problem
}

// EveryProblem returns the problems of all objects, in no order, for reports about each object. The loop makes the list
// again only where a problem has changed; neither it nor the caller changes a list afterwards. Its error is the
// context's.
func (l *Loop) EveryProblem(ctx context.Context) ([]object.Problem, error) {
	l.asking.Lock()
	defer l.asking.Unlock()
	if l.asked != nil && l.asked.version == l.version.Load() {
		return l.asked.all, nil
	}
	e, err := ask(ctx, l, l.collectProblems)
	if err == nil {
		l.asked = &e
	}
	return e.all, err
}

// collectProblems runs after publish.
func (l *Loop) collectProblems() everyProblem {
	e := everyProblem{version: l.version.Load(), all: slices.Collect(l.state.inventory.faults.Every())}
	e.all = append(append(e.all, l.state.more()...), l.between...)
	return e
}

// Objects returns objects as they were emitted last; those that do not exist are left out. Its error is the context's.
func (l *Loop) Objects(ctx context.Context, ids []object.ID) (map[object.ID]*object.Object, error) {
	return ask(ctx, l, func() map[object.ID]*object.Object {
		all := make(map[object.ID]*object.Object, len(ids))
		for _, id := range ids {
			if n := l.state.inventory.objects.Get(id); n != nil && n.Object() != nil {
				all[id] = n.Object()
			}
		}
		return all
	})
}

// ask has the loop answer a question, after publish. Its error is the context's.
func ask[A any](ctx context.Context, l *Loop, question func() A) (answer A, err error) {
	answers := make(chan A, 1)
	l.box.Put(input{ask: []func(){func() { answers <- question() }}})
	select {
	case answer = <-answers:
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// Settle returns once everything that was emitted before is taken, and Config.Referred knows which Secrets are referred
// to. Its error is the context's.
func (l *Loop) Settle(ctx context.Context) error {
	taken := make(chan struct{})
	l.box.Put(input{settle: []chan struct{}{taken}})
	select {
	case <-taken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Settled reports whether this process leads, has compared everything with the store, and has written all that the loop
// has taken.
func (l *Loop) Settled() bool { return l.settled.Load() }

// OfCluster reports whether an address is a Service's or a Pod's of the clusters whose objects have been taken so far.
// Safe for concurrent use.
func (l *Loop) OfCluster(a netip.Addr) bool { return l.state.inventory.objects.Addresses().Has(a) }

// Bounded returns a list of problems within the bounds of problem.Bound, sorted. One problem of each namespace counts
// those that are left out; left counts those that were left out before, by namespace.
func Bounded(all []object.Problem, left map[string]int) []object.Problem {
	shown, more := problem.Bound(all, func(p object.Problem) (string, object.ID) { return NamespaceOf(p), p.ID })
	if len(left)+len(more) == 0 {
		return all
	}
	sum := map[string]int{}
	for _, counts := range []map[string]int{left, more} {
		for namespace, n := range counts {
			sum[namespace] += n
		}
	}
	const shownNamespaces = problem.Most
	shown = slices.Clone(shown)
	for i, namespace := range slices.Sorted(maps.Keys(sum)) {
		if i == shownNamespaces {
			shown = append(shown, object.Problem{Code: problem.NotAllowed, Severity: problem.Warning,
				Message: fmt.Sprintf("problems of %d more namespaces are not listed", len(sum)-i)})
			break
		}
		of := "of this namespace"
		if namespace == "" {
			of = "of the mesh as a whole"
		}
		shown = append(shown, object.Problem{ID: object.ID{Kind: "Namespace", Name: namespace},
			Code: problem.NotAllowed, Severity: problem.Warning,
			Message: fmt.Sprintf("%d more problems %s are not listed; where it is written, the status of each object says its own",
				sum[namespace], of)})
	}
	slices.SortFunc(shown, normal.CompareProblems)
	return shown
}
