// Package faults keeps the problems of objects, and lists a bounded number of them. The cost of a change depends on the
// number of namespaces with problems, not on the number of faulty objects.
//
// List keeps the problems of every object, at most problem.MostOfObject of each. Of these problems it lists those of at
// most problem.MostOfNamespace objects of each namespace, and of at most problem.Most objects in total. If the total is
// reached, an object of a namespace with few listed objects displaces an object of the namespace with most listed
// objects. When a listed object has no problems any more, another object is listed instead, if there is one.
//
// Owns: nothing; the caller owns the List. Reads: store/object, store/problem.
// Never: knows why an object is faulty.
package faults

import (
	"iter"
	"maps"
	"slices"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// List contains the problems of all objects. One goroutine owns it.
type List struct {
	namespaces map[string]*shelf
	listed     int // objects that are listed
	changed    func(namespace string, gone, come []object.Problem)
	version    uint64
	count      problem.Count
	rejected   map[string]int // objects with errors, by kind
}

// shelf contains the faulty objects of one namespace, with their problems. The objects in the map more are not
// listed.
type shelf struct {
	listed, more map[object.ID][]object.Problem
	left         int // number of problems in the map more
}

// New returns an empty List. The List calls the function changed when problems of objects in a namespace change. The
// function receives the problems that are not listed any more, and those that are listed now. Both slices are
// read-only.
func New(changed func(namespace string, gone, come []object.Problem)) *List {
	return &List{namespaces: map[string]*shelf{}, changed: changed, rejected: map[string]int{}}
}

// Of returns the problems of an object, listed or not, as Set kept them; nil without problems. The caller must not
// change the slice.
func (l *List) Of(id object.ID) []object.Problem {
	s := l.namespaces[id.Namespace]
	if s == nil {
		return nil
	}
	if problems, is := s.listed[id]; is {
		return problems
	}
	return s.more[id]
}

// Set replaces the problems of an object; an empty list removes them. If there are more than problem.MostOfObject
// problems, Set omits warnings before errors, and the last kept problem states the number of omitted ones. Each text of
// a problem is cut to 512 bytes. The List retains the slice, which the caller must not change afterwards.
func (l *List) Set(id object.ID, problems []object.Problem) {
	problems = bounded(id, problems)
	before := l.Of(id)
	if slices.Equal(before, problems) {
		return
	}
	l.version++
	for _, p := range problems {
		l.count.Add(p.Severity, 1)
	}
	for _, p := range before {
		l.count.Add(p.Severity, -1)
	}
	switch {
	case len(before) > 0 && len(problems) > 0:
		l.replace(id, before, problems)
	case len(before) > 0:
		l.remove(id, before)
	default:
		l.add(id, problems)
	}
}

// replace replaces the problems of an object, without changing whether the object is listed.
func (l *List) replace(id object.ID, before, problems []object.Problem) {
	s := l.namespaces[id.Namespace]
	l.reject(id.Kind, before, -1)
	l.reject(id.Kind, problems, 1)
	if _, is := s.listed[id]; is {
		s.listed[id] = problems
		l.changed(id.Namespace, before, problems)
		return
	}
	s.more[id] = problems
	s.left += len(problems) - len(before)
	l.changed(id.Namespace, nil, nil)
}

// reject changes the number of rejected objects of a kind by the given difference, if the problems contain an error.
func (l *List) reject(kind string, problems []object.Problem, by int) {
	if !hasError(problems) {
		return
	}
	if l.rejected[kind] += by; l.rejected[kind] == 0 {
		delete(l.rejected, kind)
	}
}

func (l *List) add(id object.ID, problems []object.Problem) {
	s := l.namespaces[id.Namespace]
	if s == nil {
		s = &shelf{listed: map[object.ID][]object.Problem{}, more: map[object.ID][]object.Problem{}}
		l.namespaces[id.Namespace] = s
	}
	l.reject(id.Kind, problems, 1)
	if len(s.listed) < problem.MostOfNamespace && (l.listed < problem.Most || l.makeRoom(len(s.listed)+1)) {
		l.list(s, id, problems)
		return
	}
	s.more[id] = problems
	s.left += len(problems)
	l.changed(id.Namespace, nil, nil)
}

func (l *List) list(s *shelf, id object.ID, problems []object.Problem) {
	s.listed[id] = problems
	l.listed++
	l.changed(id.Namespace, nil, problems)
}

// makeRoom stops listing one object of the namespace with most listed objects. It does so only if that namespace has
// more listed objects than the given number, and reports whether it did.
func (l *List) makeRoom(than int) bool {
	var most *shelf
	for _, s := range l.namespaces {
		if most == nil || len(s.listed) > len(most.listed) {
			most = s
		}
	}
	if len(most.listed) <= than {
		return false
	}
	for id, problems := range most.listed {
		delete(most.listed, id)
		most.more[id] = problems
		most.left += len(problems)
		l.listed--
		l.changed(id.Namespace, problems, nil)
		break
	}
	return true
}

func (l *List) remove(id object.ID, problems []object.Problem) {
	s := l.namespaces[id.Namespace]
	l.reject(id.Kind, problems, -1)
	if _, was := s.listed[id]; was {
		delete(s.listed, id)
		l.listed--
		l.changed(id.Namespace, problems, nil)
		l.fill(s)
	} else {
		delete(s.more, id)
		s.left -= len(problems)
		l.changed(id.Namespace, nil, nil)
	}
	if len(s.listed)+len(s.more) == 0 {
		delete(l.namespaces, id.Namespace)
	}
}

// fill lists one more object that is not listed, if there is one, preferably of the given namespace.
func (l *List) fill(first *shelf) {
	if l.promote(first) {
		return
	}
	for _, s := range l.namespaces {
		if len(s.listed) < problem.MostOfNamespace && l.promote(s) {
			return
		}
	}
}

func (l *List) promote(s *shelf) bool {
	for id, problems := range s.more {
		delete(s.more, id)
		s.left -= len(problems)
		l.list(s, id, problems)
		return true
	}
	return false
}

// Objects returns the number of listed objects.
func (l *List) Objects() int { return l.listed }

// Left returns the number of kept problems that are not listed, by namespace. Namespaces that are listed in full are
// absent. The map is never nil, and the caller owns it.
func (l *List) Left() map[string]int {
	left := map[string]int{}
	for namespace, s := range l.namespaces {
		if s.left > 0 {
			left[namespace] = s.left
		}
	}
	return left
}

// LeftOf returns the number of kept problems of a namespace that are not listed.
func (l *List) LeftOf(namespace string) int {
	if s := l.namespaces[namespace]; s != nil {
		return s.left
	}
	return 0
}

// Every yields the kept problems of all objects, in no order. The List must not change meanwhile.
func (l *List) Every() iter.Seq[object.Problem] {
	return func(yield func(object.Problem) bool) {
		for _, s := range l.namespaces {
			for _, objects := range []map[object.ID][]object.Problem{s.listed, s.more} {
				for _, problems := range objects {
					for _, p := range problems {
						if !yield(p) {
							return
						}
					}
				}
			}
		}
	}
}

// Version returns the number of changes of the List so far. While the number is unchanged, all results are too.
func (l *List) Version() uint64 { return l.version }

// Count returns the numbers of kept problems, listed or not, by severity.
func (l *List) Count() problem.Count { return l.count }

// Rejected returns the number of objects with errors, listed or not, by kind. The map is never nil, and the caller owns
// it.
func (l *List) Rejected() map[string]int { return maps.Clone(l.rejected) }

// Rejects reports whether the problems of an object contain an error.
func (l *List) Rejects(id object.ID) bool { return hasError(l.Of(id)) }

func hasError(problems []object.Problem) bool {
	return slices.ContainsFunc(problems, func(p object.Problem) bool { return p.Severity == problem.Error })
}
