package ingest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// maxText bounds a field and a message of a problem, in bytes: the rest is cut off.
const maxText = 512

// faults is the objects that have problems, all of them; what is listed is bounded, of each namespace and in all, and a change costs no more than that.
type faults struct {
	of       map[string]*shelf // by namespace
	listed   int               // objects that are listed
	inOrder  []object.Problem  // what is listed, sorted; nil: to be made
	sorted   uint64            // how many times inOrder was made
	version  uint64            // counts changes
	count    problem.Count     // problems of all objects
	rejected map[string]int    // objects of each kind that do not apply
}

// shelf is the objects of one namespace.
type shelf struct {
	listed, more map[object.ID]*entry
	left         int // problems of more
}

func newFaults() *faults { return &faults{of: map[string]*shelf{}, rejected: map[string]int{}} }

// set replaces the problems of an object.
func (f *faults) set(id object.ID, e *entry, problems []object.Problem) {
	problems = bounded(id, problems)
	if slices.Equal(e.problems, problems) {
		return
	}
	f.version++
	for _, p := range problems {
		f.count.Add(p.Severity, 1)
	}
	for _, p := range e.problems {
		f.count.Add(p.Severity, -1)
	}
	if len(e.problems) > 0 {
		f.remove(id, e)
	}
	if e.problems = problems; len(problems) > 0 {
		f.add(id, e)
	}
}

func (f *faults) add(id object.ID, e *entry) {
	s := f.of[id.Namespace]
	if s == nil {
		s = &shelf{listed: map[object.ID]*entry{}, more: map[object.ID]*entry{}}
		f.of[id.Namespace] = s
	}
	if rejects(e.problems) {
		f.rejected[id.Kind]++
	}
	if len(s.listed) < problem.MostOfNamespace && (f.listed < problem.Most || f.makeRoom(len(s.listed)+1)) {
		f.list(s, id, e)
		return
	}
	s.more[id] = e
	s.left += len(e.problems)
}

func (f *faults) list(s *shelf, id object.ID, e *entry) {
	s.listed[id] = e
	f.listed++
	f.inOrder = nil
}

// makeRoom lists one object less of the namespace that has most listed, if that has more than so many.
func (f *faults) makeRoom(than int) bool {
	var most *shelf
	for _, s := range f.of {
		if most == nil || len(s.listed) > len(most.listed) {
			most = s
		}
	}
	if len(most.listed) <= than {
		return false
	}
	for id, e := range most.listed {
		delete(most.listed, id)
		most.more[id] = e
		most.left += len(e.problems)
		f.listed--
		break
	}
	return true
}

func (f *faults) remove(id object.ID, e *entry) {
	s := f.of[id.Namespace]
	if rejects(e.problems) {
		if f.rejected[id.Kind]--; f.rejected[id.Kind] == 0 {
			delete(f.rejected, id.Kind)
		}
	}
	if _, was := s.listed[id]; was {
		delete(s.listed, id)
		f.listed--
		f.inOrder = nil
		f.fill(s)
	} else {
		delete(s.more, id)
		s.left -= len(e.problems)
	}
	if len(s.listed)+len(s.more) == 0 {
		delete(f.of, id.Namespace)
	}
}

// fill lists an object more, where one waits: of this namespace rather than of another.
func (f *faults) fill(first *shelf) {
	if f.promote(first) {
		return
	}
	for _, s := range f.of {
		if len(s.listed) < problem.MostOfNamespace && f.promote(s) {
			return
		}
	}
}

func (f *faults) promote(s *shelf) bool {
	for id, e := range s.more {
		delete(s.more, id)
		s.left -= len(e.problems)
		f.list(s, id, e)
		return true
	}
	return false
}

// problems is what is listed, sorted. What it returned is not changed any more, neither by the caller.
func (f *faults) problems() []object.Problem {
	if f.inOrder == nil && f.listed > 0 {
		f.sorted++
		for _, s := range f.of {
			for _, e := range s.listed {
				f.inOrder = append(f.inOrder, e.problems...)
			}
		}
		slices.SortFunc(f.inOrder, normal.CompareProblems)
	}
	return slices.Clip(f.inOrder)
}

// left is how many problems of each namespace are not listed.
func (f *faults) left() map[string]int {
	left := map[string]int{}
	for namespace, s := range f.of {
		if s.left > 0 {
			left[namespace] = s.left
		}
	}
	return left
}

// every is the problems of all objects, in no order.
func (f *faults) every() iter.Seq[object.Problem] {
	return func(yield func(object.Problem) bool) {
		for _, s := range f.of {
			for _, entries := range []map[object.ID]*entry{s.listed, s.more} {
				for _, e := range entries {
					for _, p := range e.problems {
						if !yield(p) {
							return
						}
					}
				}
			}
		}
	}
}

func rejects(problems []object.Problem) bool {
	return slices.ContainsFunc(problems, func(p object.Problem) bool { return p.Severity == problem.Error })
}

// bounded is as many problems of one object as are kept, errors first where there are too many.
func bounded(id object.ID, all []object.Problem) []object.Problem {
	if len(all) > problem.MostOfObject {
		all = slices.Clone(all)
		slices.SortStableFunc(all, func(a, b object.Problem) int { return strings.Compare(string(a.Severity), string(b.Severity)) }) // error, warning
		more := len(all) - problem.MostOfObject + 1
		all = append(all[:problem.MostOfObject-1], object.Problem{ID: id, Location: all[0].Location, Code: problem.NotAllowed, Severity: problem.Warning,
			Message: fmt.Sprintf("%d more problems of this object are not listed", more)})
	}
	for i, p := range all {
		if len(p.Field) > maxText || len(p.Message) > maxText {
			all = slices.Clone(all)
			all[i].Field, all[i].Message = cut(p.Field), cut(p.Message)
		}
	}
	return all
}

func cut(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxText)]), "") // in memory of its own
}

// Bounded is a list of problems within the bounds of problem.Bound, sorted; what is left out is counted in one problem of each namespace. left is what
// was left out before, by namespace.
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
			shown = append(shown, object.Problem{Code: problem.NotAllowed, Severity: problem.Warning, Message: fmt.Sprintf("problems of %d more namespaces are not listed", len(sum)-i)})
			break
		}
		of := "of this namespace"
		if namespace == "" {
			of = "of the mesh as a whole"
		}
		shown = append(shown, object.Problem{ID: object.ID{Kind: "Namespace", Name: namespace}, Code: problem.NotAllowed, Severity: problem.Warning,
			Message: fmt.Sprintf("%d more problems %s are not listed; where it is written, the status of each object says its own", sum[namespace], of)})
	}
	slices.SortFunc(shown, normal.CompareProblems)
	return shown
}

// ProblemCount counts the problems, those that Problems does not list included.
func (l *Loop) ProblemCount() problem.Count {
	if c := l.count.Load(); c != nil {
		return *c
	}
	return problem.Count{}
}

// everything is what all objects' problems are, at a version.
type everything struct {
	version uint64
	all     []object.Problem
}

// EveryProblem is what Problems is, of all objects that there are, in no order: for what is said of each of them. It is asked for again only where something
// has changed; what it returned is not changed any more. Its error is the context's.
func (l *Loop) EveryProblem(ctx context.Context) ([]object.Problem, error) {
	l.asking.Lock()
	defer l.asking.Unlock()
	if l.asked != nil && l.asked.version == l.version.Load() {
		return l.asked.all, nil
	}
	e, err := ask(ctx, l, l.everything)
	if err == nil {
		l.asked = &e
	}
	return e.all, err
}

// Objects finds objects as they were emitted last; those that are not there are left out. Its error is the context's.
func (l *Loop) Objects(ctx context.Context, ids []object.ID) (map[object.ID]*object.Object, error) {
	return ask(ctx, l, func() map[object.ID]*object.Object {
		all := make(map[object.ID]*object.Object, len(ids))
		for _, id := range ids {
			if e := l.state.objects[id]; e != nil && e.object != nil {
				all[id] = e.object
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

// everything is asked for after publish.
func (l *Loop) everything() everything {
	e := everything{version: l.version.Load(), all: slices.Collect(l.state.faults.every())}
	e.all = append(append(e.all, l.state.more()...), l.between...)
	return e
}

// changed is what tells that problems that are not listed are others.
type faultsVersion struct {
	faults, ledger    uint64
	refused, unsealed int
}

func (s *State) faultsVersion() faultsVersion {
	v := faultsVersion{faults: s.faults.version, refused: len(s.refused), unsealed: len(s.unsealed)}
	if s.ledger != nil {
		v.ledger = s.ledger.version
	}
	return v
}
