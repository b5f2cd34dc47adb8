package ingest

import (
	"cmp"
	"iter"
	"slices"

	"navarch.io/navarch/store/ingest/faults"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// finder is a part of the ingester that finds problems.
type finder int

const (
	ofObjects  finder = iota // faults.List: the problems of objects that it lists
	ofState                  // State.more
	ofAnalysis               // crossCheck
	ofMisuse                 // inventory.misused
	finders
)

// shown keeps the problems of all finders, and lists those that are within the bounds of problem.Bound. The list is
// that of Bounded. A change examines only the namespaces whose problems changed. Of each such namespace, it examines
// only as many problems as may be listed.
type shown struct {
	faults     *faults.List
	namespaces map[string]*shelf // by NamespaceOf
	changed    map[string]bool   // namespaces that changed since the last call of problems
	// sizes[n] is the number of namespaces with n problems within the bounds of one namespace.
	sizes   [problem.MostOfNamespace + 1]int
	each    int                       // problems that each namespace may list
	counted int                       // namespaces with a problem that counts unlisted problems
	list    []object.Problem          // listed problems of all namespaces; its elements do not change
	result  []object.Problem          // result of problems; its elements do not change
	given   [finders][]object.Problem // arguments of set
	version uint64                    // number of changes
	// The numbers of problems of all finders but ofObjects, by severity, and of their errors, by object.
	count  problem.Count
	errors map[object.ID]int
	// examined counts the problems that were compared with the bounds.
	examined uint64
}

// shelf has the problems of one namespace.
type shelf struct {
	found      [finders][]object.Problem // in the order of compare
	gone, come [finders][]object.Problem // changes that found lacks
	bounded    []object.Problem          // problems within the bounds of one namespace
	listed     []object.Problem          // the beginning of bounded that is listed
	left       []object.Problem          // the listed problem that counts unlisted problems, if there is one
}

func newShown() *shown {
	s := &shown{namespaces: map[string]*shelf{}, changed: map[string]bool{}, errors: map[object.ID]int{}}
	s.faults = faults.New(func(namespace string, gone, come []object.Problem) {
		s.touch(namespace)
		s.replace(ofObjects, gone, come)
	})
	return s
}

// compare refines normal.CompareProblems: only equal problems compare as equal.
func compare(a, b object.Problem) int {
	return cmp.Or(normal.CompareProblems(a, b), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Analyzer, b.Analyzer),
		cmp.Compare(a.Severity, b.Severity))
}

// replace removes problems of a finder and adds others. Problems in both lists stay.
func (s *shown) replace(by finder, gone, come []object.Problem) {
	for _, p := range gone {
		f := s.change(by, p, -1)
		f.gone[by] = append(f.gone[by], p)
	}
	for _, p := range come {
		f := s.change(by, p, 1)
		f.come[by] = append(f.come[by], p)
	}
}

// change counts a problem that comes (1) or goes (-1), and returns its shelf.
func (s *shown) change(by finder, p object.Problem, n int) *shelf {
	if by != ofObjects {
		s.count.Add(p.Severity, n)
		if p.Severity == problem.Error {
			if s.errors[p.ID] += n; s.errors[p.ID] == 0 {
				delete(s.errors, p.ID)
			}
		}
	}
	return s.touch(NamespaceOf(p))
}

// touch marks a namespace as changed, and returns its shelf.
func (s *shown) touch(namespace string) *shelf {
	s.version++
	s.changed[namespace] = true
	f := s.namespaces[namespace]
	if f == nil {
		f = &shelf{}
		s.namespaces[namespace] = f
		s.sizes[0]++
	}
	return f
}

// set replaces all problems of a finder. The list is retained, and must not change afterwards.
func (s *shown) set(by finder, all []object.Problem) {
	if before := s.given[by]; !slices.Equal(before, all) {
		s.given[by] = all
		s.replace(by, before, all)
	}
}

// reset removes all problems of a finder.
func (s *shown) reset(by finder) { s.replace(by, slices.Collect(s.of(by)), nil) }

// of yields the problems of a finder, in no order.
func (s *shown) of(by finder) iter.Seq[object.Problem] {
	return func(yield func(object.Problem) bool) {
		for _, f := range s.namespaces {
			f.apply()
			for _, p := range f.found[by] {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// problems returns the listed problems, ordered by normal.CompareProblems. The slice is shared and read-only.
func (s *shown) problems() []object.Problem {
	if len(s.changed) == 0 {
		return s.result
	}
	for namespace := range s.changed {
		s.bound(s.namespaces[namespace])
	}
	if each := problem.Share(s.sizes[:]); each != s.each {
		s.each = each
		for namespace := range s.namespaces {
			s.changed[namespace] = true
		}
	}
	var gone, come []object.Problem
	for namespace := range s.changed {
		out, in := s.relist(namespace, s.namespaces[namespace])
		gone, come = append(gone, out...), append(come, in...)
	}
	clear(s.changed)
	s.list = spliced(s.list, gone, come)
	s.result = slices.Clip(s.list)
	switch {
	case s.count == problem.Count{} && s.faults.Objects() <= problem.Most/problem.MostOfObject:
		s.result = s.every()
	case s.counted > problem.Most || len(s.list)-s.counted > problem.Most: // too many namespaces to list all of them
		s.result = Bounded(s.every(), s.faults.Left())
	}
	return s.result
}

// every returns the problems of all finders, sorted.
func (s *shown) every() (all []object.Problem) {
	for by := range finders {
		all = slices.AppendSeq(all, s.of(by))
	}
	slices.SortFunc(all, compare)
	return all
}

// bound applies the changes of a shelf, and determines its problems within the bounds of one namespace.
func (s *shown) bound(f *shelf) {
	f.apply()
	s.sizes[len(f.bounded)]--
	f.bounded = nil
	last, ofObject, heads := object.ID{}, 0, f.found
	for len(f.bounded) < problem.MostOfNamespace {
		first := ofObjects
		for by, list := range heads {
			if len(heads[first]) == 0 || len(list) > 0 && compare(list[0], heads[first][0]) < 0 {
				first = finder(by)
			}
		}
		if len(heads[first]) == 0 {
			break
		}
		p := heads[first][0]
		heads[first] = heads[first][1:]
		s.examined++
		if p.ID != last {
			last, ofObject = p.ID, 0
		}
		if ofObject++; ofObject <= problem.MostOfObject {
			f.bounded = append(f.bounded, p)
		}
	}
	s.sizes[len(f.bounded)]++
}

// relist determines the listed problems of a namespace. The results are the problems that are not listed any more, and
// those that are listed now.
func (s *shown) relist(namespace string, f *shelf) (gone, come []object.Problem) {
	listed, left := f.bounded[:min(len(f.bounded), s.each)], s.faults.LeftOf(namespace)
	for _, list := range f.found {
		left += len(list)
	}
	var counting []object.Problem
	if left -= len(listed); left > 0 {
		counting = []object.Problem{leftOf(namespace, left)}
	}
	gone, come = differing(f.listed, listed)
	if !slices.Equal(counting, f.left) {
		gone, come = slices.Concat(gone, f.left), slices.Concat(come, counting)
		s.counted += len(counting) - len(f.left)
	}
	f.listed, f.left = listed, counting
	if len(listed)+len(counting) == 0 {
		delete(s.namespaces, namespace)
		s.sizes[0]--
	}
	return gone, come
}

// apply applies the changes to the field found.
func (f *shelf) apply() {
	for by := range f.found {
		f.found[by] = spliced(f.found[by], f.gone[by], f.come[by])
		f.gone[by], f.come[by] = nil, nil
	}
}

// differing returns the parts of two lists between their equal beginnings and their equal ends.
func differing(a, b []object.Problem) (inA, inB []object.Problem) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// spliced returns a list without the problems gone and with the problems come. The list and the result are in the order
// of compare. Problems in both gone and come have no effect. The result is the list itself if there is no effect, and a
// new list otherwise.
func spliced(list, gone, come []object.Problem) []object.Problem {
	gone, come = slices.SortedFunc(slices.Values(gone), compare), slices.SortedFunc(slices.Values(come), compare)
	var out []object.Problem
	rest := list
	for len(gone)+len(come) > 0 {
		order := 1
		if len(come) == 0 {
			order = -1
		} else if len(gone) > 0 {
			order = compare(gone[0], come[0])
		}
		if order == 0 {
			gone, come = gone[1:], come[1:]
			continue
		}
		if out == nil {
			out = make([]object.Problem, 0, len(list)+len(come))
		}
		next := &come
		if order < 0 {
			next = &gone
		}
		at, found := slices.BinarySearchFunc(rest, (*next)[0], compare)
		out, rest = append(out, rest[:at]...), rest[at:]
		switch {
		case order > 0:
			out = append(out, (*next)[0])
		case found:
			rest = rest[1:]
		}
		*next = (*next)[1:]
	}
	if out == nil {
		return list
	}
	return append(out, rest...)
}
