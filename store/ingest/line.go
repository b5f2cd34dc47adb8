package ingest

import (
	"time"

	"navarch.io/navarch/store/object"
)

// turn is the time for which the loop applies calls of sources before it carries out their effects.
const turn = 25 * time.Millisecond

// always is a closed channel: a receive from it never blocks.
var always = func() chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}()

// line contains the calls of sources that are not applied yet. Namespaces take turns: a call waits for one call of each
// other namespace, however many came before it. Calls of one namespace keep their order. A call about several
// namespaces, or about a whole source, stays between the calls before and after it. Loop owns it.
type line struct {
	segments []*segment // oldest first
}

// segment contains either a single call that keeps its place, or calls about one namespace each. In the latter,
// namespaces take turns.
type segment struct {
	alone  *Emit            // nil: see calls
	calls  map[string]Emits // by namespace, oldest first
	spaces []string         // keys of calls, the next turn first
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
		namespace, one := namespaceOf(e.Objects)
		if !one {
			l.segments = append(l.segments, &segment{alone: &e})
			continue
		}
		var last *segment
		if n := len(l.segments); n > 0 && l.segments[n-1].alone == nil {
			last = l.segments[n-1]
		} else {
			last = &segment{calls: map[string]Emits{}}
			l.segments = append(l.segments, last)
		}
		if last.calls[namespace] == nil {
			last.spaces = append(last.spaces, namespace)
		}
		last.calls[namespace] = append(last.calls[namespace], e)
	}
}

// namespaceOf returns the namespace of all events. False: the events are of several namespaces, or concern a whole
// source.
func namespaceOf(events Objects) (namespace string, one bool) {
	for i, e := range events {
		if e.Op == object.Synced || e.Op == object.Forget || i > 0 && e.ID.Namespace != namespace {
			return "", false
		}
		namespace = e.ID.Namespace
	}
	return namespace, true
}

// next removes and returns the oldest call of the namespace whose turn it is. The line must not be empty.
func (l *line) next() Emit {
	s := l.segments[0]
	if s.alone != nil {
		l.segments = l.segments[1:]
		return *s.alone
	}
	namespace := s.spaces[0]
	e := s.calls[namespace][0]
	s.spaces = s.spaces[1:]
	if left := s.calls[namespace][1:]; len(left) > 0 {
		s.calls[namespace], s.spaces = left, append(s.spaces, namespace)
	} else if delete(s.calls, namespace); len(s.calls) == 0 {
		l.segments = l.segments[1:]
	}
	return e
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
