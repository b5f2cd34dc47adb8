package ingest

import (
	"slices"
	"time"

	"navarch.io/navarch/store/object"
)

// turn is the time for which the loop applies calls of sources before it carries out their effects.
const turn = 25 * time.Millisecond

// maxBefore is the highest number of earlier calls of one namespace for which a call about several namespaces waits.
// Beyond this number the call is divided, so that a tenant with many waiting calls does not delay the rest of the call.
const maxBefore = 8

// always is a closed channel: a receive from it never blocks.
var always = func() chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}()

// line contains the calls of sources that are not applied yet. Namespaces take turns: a call waits for one call of each
// other namespace, even if more calls of that namespace are older. Calls of one namespace keep their order, even if
// they are also about other namespaces. A call about a whole source stays between the calls before and after it. Loop
// owns it.
type line struct {
	segments []*segment // oldest first
}

// segment contains either a single call about a whole source, or calls about namespaces, which take turns.
type segment struct {
	source *Emit              // nil: see calls
	calls  map[string][]*call // by namespace, oldest first; a call about several namespaces is in each of their lists
	spaces []string           // keys of calls, in the order of their next turns
}

// call is one call of a source. A call about several namespaces is applied as a whole once it is the first call of
// each of these namespaces. If one of them has more than maxBefore earlier calls, the call is applied in parts.
type call struct {
	Emit
	spaces []string // namespaces of the events
}

func (l *line) empty() bool { return len(l.segments) == 0 }

// ready returns a closed channel while calls wait, and nil otherwise.
func (l *line) ready() <-chan struct{} {
	if l.empty() {
		return nil
	}
	return always
}

// add appends calls, oldest first.
func (l *line) add(emits Emits) {
	for _, e := range emits {
		spaces, source := namespacesOf(e.Objects)
		if source {
			l.segments = append(l.segments, &segment{source: &e})
			continue
		}
		var last *segment
		if n := len(l.segments); n > 0 && l.segments[n-1].source == nil {
			last = l.segments[n-1]
		} else {
			last = &segment{calls: map[string][]*call{}}
			l.segments = append(l.segments, last)
		}
		c := &call{Emit: e, spaces: spaces}
		for _, namespace := range spaces {
			if last.calls[namespace] == nil {
				last.spaces = append(last.spaces, namespace)
			}
			last.calls[namespace] = append(last.calls[namespace], c)
		}
	}
}

// namespacesOf returns the namespaces of events, in the order of their first occurrence; without events, the empty
// namespace. source reports that an event concerns a whole source.
func namespacesOf(events Objects) (spaces []string, source bool) {
	known := map[string]bool{}
	for i, e := range events {
		if e.Op == object.Synced || e.Op == object.Forget {
			return nil, true
		}
		if i > 0 && e.ID.Namespace == events[i-1].ID.Namespace || known[e.ID.Namespace] {
			continue
		}
		known[e.ID.Namespace] = true
		spaces = append(spaces, e.ID.Namespace)
	}
	if len(spaces) == 0 {
		spaces = []string{""}
	}
	return spaces, false
}

// next removes and returns the oldest call of the namespace whose turn it is, or the namespace's part of this call. The
// line must not be empty.
func (l *line) next() Emit {
	s := l.segments[0]
	if s.source != nil {
		l.segments = l.segments[1:]
		return *s.source
	}
	waiting := map[*call]bool{} // calls that are not the first call of each of their namespaces; rotations do not change that
	for {                       // ends: the oldest call of all is the first of each of its namespaces
		namespace := s.spaces[0]
		c := s.calls[namespace][0]
		switch {
		case waiting[c]:
			s.spaces = append(s.spaces[1:], namespace)
			continue
		case s.within(c, 1):
			s.remove(c.spaces...)
		case s.within(c, 1+maxBefore):
			waiting[c] = true
			continue
		default:
			s.remove(namespace)
			c = c.divide(namespace)
		}
		if len(s.calls) == 0 {
			l.segments = l.segments[1:]
		}
		return c.Emit
	}
}

// within reports whether a call is among the first n of each of its namespaces.
func (s *segment) within(c *call, n int) bool {
	return !slices.ContainsFunc(c.spaces, func(namespace string) bool {
		calls := s.calls[namespace]
		return !slices.Contains(calls[:min(n, len(calls))], c)
	})
}

// remove removes the first call of each given namespace, and ends the turns of these namespaces.
func (s *segment) remove(spaces ...string) {
	ended := make(map[string]bool, len(spaces))
	for _, namespace := range spaces {
		ended[namespace] = true
	}
	s.spaces = slices.DeleteFunc(s.spaces, func(namespace string) bool { return ended[namespace] })
	for _, namespace := range spaces {
		if left := s.calls[namespace][1:]; len(left) > 0 {
			s.calls[namespace], s.spaces = left, append(s.spaces, namespace)
		} else {
			delete(s.calls, namespace)
		}
	}
}

// divide removes the events of one namespace from a call, and returns them as a call.
func (c *call) divide(namespace string) *call {
	part := &call{Emit: Emit{At: c.At}}
	var rest Objects // the events belong to the caller of add, so they stay unchanged
	for _, e := range c.Objects {
		if e.ID.Namespace == namespace {
			part.Objects = append(part.Objects, e)
		} else {
			rest = append(rest, e)
		}
	}
	c.Objects = rest
	c.spaces = slices.DeleteFunc(c.spaces, func(of string) bool { return of == namespace })
	return part
}

// applyWaiting applies calls of sources that wait, and returns their effects. It applies all calls, or as many as fit
// into a turn, at least one.
func (l *Loop) applyWaiting(all bool) []Effect {
	first, began := true, time.Now()
	return l.state.applyEach(func(yield func(Emit) bool) {
		for !l.line.empty() && (first || all || time.Since(began) < turn) {
			if first = false; !yield(l.line.next()) {
				return
			}
		}
	})
}
