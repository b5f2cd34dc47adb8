package plan

import (
	"context"
	"slices"
	"time"

	"navarch.io/navarch/push/view"
)

// entering is a proxy that joins, as Loop.Join waits for it.
type entering struct {
	node  view.Node
	moved func(Path)
	join  *Joining      // nil: it has not begun, with this planner
	done  chan struct{} // closed once proxy or err is there
	proxy *Proxy
	err   error
}

// line is the proxies of one namespace for which something has to be made, in the order in which they came.
type line struct {
	namespace string
	entering  []*entering
}

// waiter waits until everything is planned that the source had published when it came.
type waiter struct {
	revision int64
	then     func()
}

// await calls f once everything is planned that the source has published.
func (l *Loop) await(f func()) {
	if l.planner == nil || l.planner.Revision() >= l.newest.Revision() {
		f()
		return
	}
	if l.pending.Len()+l.endpointEdits.Len() == 0 {
		l.endpoints.waits = true // there is nothing to plan, and nobody has said so
	}
	l.waiting = append(l.waiting, waiter{l.newest.Revision(), f})
}

// wake calls those for whom what they wait for is planned.
func (l *Loop) wake() {
	for len(l.waiting) > 0 && (l.planner == nil || l.planner.Revision() >= l.waiting[0].revision) {
		f := l.waiting[0].then
		l.waiting = l.waiting[1:]
		f()
	}
}

// settle returns once everything is planned that the source had published before. The error is the context's, or that the loop has ended.
func (l *Loop) settle(ctx context.Context) error {
	done := make(chan struct{})
	if err := l.call(ctx, func() { l.await(func() { close(done) }) }); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ended:
		return errEnded
	}
}

// Join plans a proxy's view at the newest snapshot that the source has published. moved is called in the loop's goroutine
// after each change of the proxy's set, until Leave; it must not block (store/watchdog), and may be called before Join returns.
// ErrNotReady: there is no complete snapshot. ErrUnplannable: the view panics, and no record is to blame for it.
func (l *Loop) Join(ctx context.Context, n view.Node, moved func(Path)) (*Proxy, error) {
	e := &entering{node: n, moved: moved, done: make(chan struct{})}
	enter := func() {
		if l.planner == nil || ctx.Err() != nil {
			e.end(nil, ErrNotReady)
			return
		}
		l.await(func() { l.enter(e) })
	}
	if err := l.call(ctx, enter); err != nil {
		return nil, err
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		_ = l.call(context.Background(), func() { l.abandon(e) }) // an ended loop has nobody who joins
	case <-l.ended:
	}
	switch {
	case e.proxy != nil:
		return e.proxy, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case e.err != nil:
		return nil, e.err
	}
	return nil, errEnded
}

// end answers.
func (e *entering) end(p *Proxy, err error) {
	e.proxy, e.err = p, err
	close(e.done)
}

// answered says whether it has been.
func (e *entering) answered() bool { return e.proxy != nil || e.err != nil }

// enter has a proxy join at once where its view lacks nothing that takes long to plan; else it stands in line.
func (l *Loop) enter(e *entering) {
	if l.planner == nil && !e.answered() { // see restore
		e.end(nil, ErrNotReady)
	}
	if e.answered() {
		return
	}
	lacks := false
	err := l.guarded(func() {
		e.join = l.planner.BeginJoin(e.node)
		lacks = e.join.Lacks()
	})
	if !lacks {
		l.joined(e, err == nil)
		return
	}
	i := slices.IndexFunc(l.lines, func(line *line) bool { return line.namespace == e.node.Namespace })
	if i < 0 {
		i, l.lines = len(l.lines), append(l.lines, &line{namespace: e.node.Namespace})
	}
	l.lines[i].entering = append(l.lines[i].entering, e)
}

// makeForJoins makes, for a turn, what proxies in line lack: of each namespace the first one's, the namespaces in turn.
func (l *Loop) makeForJoins(began time.Time) {
	over := l.overAt(began)
	for len(l.lines) > 0 {
		line, more := l.lines[0], false
		l.lines = append(l.lines[1:], line)
		e := line.entering[0]
		err := l.guarded(func() {
			if e.join == nil { // restore has made another planner
				e.join = l.planner.BeginJoin(e.node)
			}
			more = e.join.Step(over)
		})
		if !more {
			l.joined(e, err == nil)
		}
		if over() {
			return
		}
	}
}

// joined answers a proxy for which all is made, or, false, for which making it has panicked.
func (l *Loop) joined(e *entering, made bool) {
	l.unqueue(e)
	h, err := l.join(e, made)
	if err != nil {
		e.end(nil, err)
		return
	}
	p := &Proxy{Handle: h, loop: l, moved: e.moved}
	defer e.end(p, nil)
	l.proxies[p.Handle] = p
	l.open() // credentials that its agent fetches modules with
	l.show()
}

// abandon ends a join that nobody waits for any more.
func (l *Loop) abandon(e *entering) {
	if e.answered() {
		return
	}
	l.unqueue(e)
	if e.join != nil {
		e.join.Drop()
	}
	e.end(nil, context.Canceled)
}

// unqueue takes a proxy out of its line.
func (l *Loop) unqueue(e *entering) {
	l.lines = slices.DeleteFunc(l.lines, func(line *line) bool {
		line.entering = slices.DeleteFunc(line.entering, func(other *entering) bool { return other == e })
		return len(line.entering) == 0
	})
}

// beginAgain has the joins in line begin again with another planner; without one they end.
func (l *Loop) beginAgain() {
	for _, line := range l.lines {
		for _, e := range line.entering {
			if e.join = nil; l.planner == nil {
				e.end(nil, ErrNotReady)
			}
		}
	}
	if l.planner == nil {
		l.lines = nil
	}
}
