package ingest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// publish makes problems and counters available to other goroutines, and reports needed host names and key sets.
// Finally it calls the functions that ask has queued.
func (l *Loop) publish() {
	l.reportNeeded()
	if !l.postponeProblems() {
		l.publishProblems()
	}
	l.publishRemovals()
	l.state.inventory.budgets.showTenants()
	l.tenants.publish(l.state)
	l.stored.Store(l.state.storedLevel())
	waiting := l.state.writes.queue.waits
	l.settled.Store(l.state.leading && l.state.phase == ready && waiting == 0 && l.line.empty())
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

// mostPostponed is the number of steps in a row after which problems are published although events wait.
const mostPostponed = 16

// postponeProblems reports whether problems can be published after a later step, which waiting events will cause. In a
// burst of events, sorting and counting thousands of problems after each step would take most of the loop's time.
func (l *Loop) postponeProblems() bool {
	if l.line.empty() || len(l.ask) > 0 || l.postponed == mostPostponed {
		l.postponed = 0
		return false
	}
	l.postponed++
	return true
}

// publishProblems publishes the list and the counts of problems that have changed.
func (l *Loop) publishProblems() {
	all := l.state.Problems()
	v := l.state.problemsVersion()
	if v == l.counted {
		return
	}
	l.problems.Store(&all)
	l.counted = v
	l.version.Add(1)
	l.publishCounts()
}

// publishCounts counts the problems of all objects, and sets the metric of objects with errors.
func (l *Loop) publishCounts() {
	f, count := l.state.inventory.faults, l.state.inventory.shown.count
	count.Add(problem.Error, f.Count().Errors)
	count.Add(problem.Warning, f.Count().Warnings)
	rejected := f.Rejected()
	for id := range l.state.inventory.shown.errors {
		if !f.Rejects(id) {
			rejected[id.Kind]++
		}
	}
	l.count.Store(&count)
	obs.RejectedConfigs.Reset()
	for kind, n := range rejected {
		obs.RejectedConfigs.WithLabelValues(kind).Set(float64(n))
	}
}

// problemsVersion contains versions and counts of problems. It also changes with problems that Problems does not list.
type problemsVersion struct {
	faults, shown, ledger uint64
	refused, unsealed     int
}

func (s *State) problemsVersion() problemsVersion {
	v := problemsVersion{faults: s.inventory.faults.Version(), shown: s.inventory.shown.version,
		refused: len(s.writes.refused), unsealed: len(s.sealing.failed)}
	if b := s.inventory.budgets; b != nil {
		v.ledger = b.ledger.version
	}
	return v
}

// Problems returns the problems of objects and between objects, bounded by Bounded and sorted by
// normal.CompareProblems. Unreadable documents are reported by their source instead. The list is shared and read-only.
// Without problems it is empty or nil.
func (l *Loop) Problems() []object.Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Stats returns the counters of finished work, since New.
func (l *Loop) Stats() Stats {
	if s := l.stats.Load(); s != nil {
		return *s
	}
	return Stats{}
}

// ProblemCount returns the numbers of problems by severity, including problems that Problems does not list.
func (l *Loop) ProblemCount() problem.Count {
	if c := l.count.Load(); c != nil {
		return *c
	}
	return problem.Count{}
}

// everyProblem contains the problems of all objects, and the value of Loop.version for which they were collected.
type everyProblem struct {
	version uint64
	all     []object.Problem
}

// EveryProblem returns the problems of all objects and between objects, in no order, for reports about each object. It
// includes problems that Problems does not list. The list is computed again only after a problem has changed. It is
// shared and read-only. EveryProblem waits for earlier calls, regardless of ctx, and then for the answer of Run. If ctx
// ends before the answer, the list is nil and the error is that of ctx.
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

// collectProblems returns the problems of all objects and between objects. It runs at the end of publish, so that the
// version is current.
func (l *Loop) collectProblems() everyProblem {
	w := l.state.inventory
	e := everyProblem{version: l.version.Load(), all: slices.Collect(w.faults.Every())}
	e.all = append(e.all, l.state.more()...)
	e.all = slices.AppendSeq(slices.AppendSeq(e.all, w.shown.of(ofAnalysis)), w.shown.of(ofMisuse))
	return e
}

// Objects returns the last readable versions of objects, by ID. Objects that do not exist, or never were readable, are
// left out. The map belongs to the caller, and the objects are read-only. Objects waits for the answer of Run. If ctx
// ends before the answer, the map is nil and the error is that of ctx.
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

// Unsealed reports whether the newest version of an object has a private key that is not sealed yet. If Unsealed has
// returned false, and Settle returns afterwards, Settled also covers the sealed record. The error is that of ctx, if
// ctx ends before the answer.
func (l *Loop) Unsealed(ctx context.Context, id object.ID) (bool, error) {
	return ask(ctx, l, func() bool {
		n := l.state.inventory.objects.Get(id)
		return n != nil && slices.ContainsFunc(n.Entry.records, func(r model.Record) bool {
			return l.state.sealing.wanted.awaitingSeal[r.Meta().Key] != nil
		})
	})
}

// ask makes Run call question at the end of publish, and returns the answer. The error is that of ctx, if ctx ends
// before the answer.
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

// Settle blocks until Run has applied all events that were emitted before the call. Run has then also called
// Config.Referred, if the references have changed. Settle does not wait for writes. The result of Settled may be
// outdated when Settle returns, but not when a second call of Settle returns. If ctx ends first, Settle returns the
// error of ctx.
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

// Settled reports whether this process leads and its results are stored. If so, Run has compared everything with the
// store, and has written all results of the received events. Secrets whose private keys are not sealed yet do not
// count.
func (l *Loop) Settled() bool { return l.settled.Load() }

// OfCluster reports whether an address belongs to a Service or a Pod of the clusters, according to the applied objects.
// The caller must unmap IPv4-mapped IPv6 addresses. It is safe for concurrent use.
func (l *Loop) OfCluster(a netip.Addr) bool { return l.state.inventory.objects.Addresses().Has(a) }

// Bounded returns the problems of a list that are within the bounds of problem.Bound. The map left has the numbers of
// problems that the caller has already left out, by namespace; it may be nil. If problems are left out, Bounded adds
// one problem with their number for each namespace. It does so for at most problem.Most namespaces, and adds one
// problem for all others. The result is then sorted by normal.CompareProblems. If no problem is left out, Bounded
// returns its first argument itself. It does not change its arguments.
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
		shown = append(shown, leftOf(namespace, sum[namespace]))
	}
	slices.SortFunc(shown, normal.CompareProblems)
	return shown
}

// leftOf returns the problem that states the number of unlisted problems of a namespace.
func leftOf(namespace string, n int) object.Problem {
	of := "of this namespace"
	if namespace == "" {
		of = "of the mesh as a whole"
	}
	const format = "%d more problems %s are not listed; the status of each object states its own problems, if statuses are written"
	return object.Problem{ID: object.ID{Kind: "Namespace", Name: namespace},
		Code: problem.NotAllowed, Severity: problem.Warning, Message: fmt.Sprintf(format, n, of)}
}

// check checks objects against each other if records have changed, and calls Config.Referred if the used Secrets and
// ConfigMaps have changed.
func (l *Loop) check() {
	w := l.state.inventory
	before := w.shown.version
	if w.crossCheck.due {
		w.crossCheck.check(&w.guard)
	}
	if w.references.moved || w.credentials.moved {
		w.shown.set(ofMisuse, w.misused())
	}
	if w.shown.version != before {
		l.version.Add(1)
	}
	l.reportReferred()
}
