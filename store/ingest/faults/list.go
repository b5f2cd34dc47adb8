// Package faults keeps the problems of objects, and lists a bounded number of them. A change of one object costs no
// more than the list is long.
//
// List keeps the problems of every object. Of each namespace, and in all, it lists the problems of a bounded number of
// objects; a namespace with few faulty objects is listed in full. An object that is mended makes room for another one.
//
// Owns: nothing; the caller has the List.  Reads: store/object, store/problem, store/normal (the order of problems).
// Never: knows why an object is faulty.
package faults

import (
	"iter"
	"maps"
	"slices"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// List is the problems of all objects. One goroutine owns it.
type List struct {
	namespaces map[string]*shelf
	listed     int              // objects that are listed
	inOrder    []object.Problem // the listed problems, sorted; nil: to be made
	sorted     uint64           // how many times inOrder was made
	version    uint64
	count      problem.Count
	rejected   map[string]int // objects with errors, by kind
}

// shelf is the faulty objects of one namespace, with their problems.
type shelf struct {
	listed, more map[object.ID][]object.Problem
	left         int // problems in more
}

// New makes an empty List.
func New() *List { return &List{namespaces: map[string]*shelf{}, rejected: map[string]int{}} }

// Of returns the problems of an object. The caller does not change them.
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

// Set replaces the problems of an object. Of too many, or too long ones, it keeps a part (see bounded).
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
	if len(before) > 0 {
		l.remove(id, before)
	}
	if len(problems) > 0 {
		l.add(id, problems)
	}
}

func (l *List) add(id object.ID, problems []object.Problem) {
	s := l.namespaces[id.Namespace]
	if s == nil {
		s = &shelf{listed: map[object.ID][]object.Problem{}, more: map[object.ID][]object.Problem{}}
		l.namespaces[id.Namespace] = s
	}
	if hasError(problems) {
		l.rejected[id.Kind]++
	}
	if len(s.listed) < problem.MostOfNamespace && (l.listed < problem.Most || l.makeRoom(len(s.listed)+1)) {
		l.list(s, id, problems)
		return
	}
	s.more[id] = problems
	s.left += len(problems)
}

func (l *List) list(s *shelf, id object.ID, problems []object.Problem) {
	s.listed[id] = problems
	l.listed++
	l.inOrder = nil
}

// makeRoom stops listing one object of the namespace with most listed objects, if it lists more than a number of them.
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
		break
	}
	return true
}

func (l *List) remove(id object.ID, problems []object.Problem) {
	s := l.namespaces[id.Namespace]
	if hasError(problems) {
		if l.rejected[id.Kind]--; l.rejected[id.Kind] == 0 {
			delete(l.rejected, id.Kind)
		}
	}
	if _, was := s.listed[id]; was {
		delete(s.listed, id)
		l.listed--
		l.inOrder = nil
		l.fill(s)
	} else {
		delete(s.more, id)
		s.left -= len(problems)
	}
	if len(s.listed)+len(s.more) == 0 {
		delete(l.namespaces, id.Namespace)
	}
}

// fill lists one more object, if one waits: of this namespace rather than of another.
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

// Listed returns the listed problems, sorted. Neither the List nor the caller changes them afterwards.
func (l *List) Listed() []object.Problem {
	if l.inOrder == nil && l.listed > 0 {
		l.sorted++
		for _, s := range l.namespaces {
			for _, problems := range s.listed {
				l.inOrder = append(l.inOrder, problems...)
			}
		}
		slices.SortFunc(l.inOrder, normal.CompareProblems)
	}
	return slices.Clip(l.inOrder)
}

// Objects counts the objects whose problems are listed.
func (l *List) Objects() int { return l.listed }

// Left counts the problems of each namespace that are not listed.
func (l *List) Left() map[string]int {
	left := map[string]int{}
	for namespace, s := range l.namespaces {
		if s.left > 0 {
			left[namespace] = s.left
		}
	}
	return left
}

// Every returns the problems of all objects, in no order.
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

// Version counts the changes of the List.
func (l *List) Version() uint64 { return l.version }

// Count counts all problems by severity.
func (l *List) Count() problem.Count { return l.count }

// Rejected counts the objects with errors, by kind. The caller may change the map.
func (l *List) Rejected() map[string]int { return maps.Clone(l.rejected) }

// Rejects reports whether an object has an error.
func (l *List) Rejects(id object.ID) bool { return hasError(l.Of(id)) }

func hasError(problems []object.Problem) bool {
	return slices.ContainsFunc(problems, func(p object.Problem) bool { return p.Severity == problem.Error })
}
