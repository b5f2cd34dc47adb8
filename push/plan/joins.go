package plan

import (
	"context"
	"slices"
	"time"

	"navarch.io/navarch/push/view"
)

// joinRequest is a call of Loop.Join that waits.
type joinRequest struct {
	node  view.Node
	moved func(Path)
	join  *Joining      // nil if it has not begun with the present planner
	done  chan struct{} // closed once proxy or err is set
	proxy *Proxy
	err   error
}

// joinQueue lists the requests of one namespace whose views lack layers, in order of arrival.
type joinQueue struct {
	namespace string
	requests  []*joinRequest
}

// waiter is a function to call once the plan is complete at a revision.
type waiter struct {
	revision int64
	then     func()
}

// await calls f once everything is planned that the source has published by now.
func (l *Loop) await(f func()) {
	if l.planner == nil || l.planner.Revision() >= l.newest.Revision() {
		f()
		return
	}
	if l.pending.Len()+l.endpointEdits.Len() == 0 {
		l.endpoints.waits = true // nothing to plan, but the new revision is not published yet
	}
	l.waiting = append(l.waiting, waiter{l.newest.Revision(), f})
}

// wake calls the waiters whose revision is planned.
func (l *Loop) wake() {
	for len(l.waiting) > 0 && (l.planner == nil || l.planner.Revision() >= l.waiting[0].revision) {
		f := l.waiting[0].then
		l.waiting = l.waiting[1:]
		f()
	}
}

// settle returns once everything is planned that the source had published before the call. The error is the context's,
// or errEnded.
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

// Join plans a proxy's view at the newest snapshot that the source has published, and blocks until the view is planned.
// The caller must call Leave of the returned Proxy at the end. Until Leave, the loop's goroutine calls the function
// moved after each change of the proxy's set, and after a panic also without a change. The function must not block
// (store/watchdog), may be nil, and may be called before Join returns.
//
// The error is ErrNotReady if there is no complete snapshot, or if the snapshot cannot be planned even without proxies.
// It is ErrUnplannable if planning the view panics, unless the view can be planned without the records that cause the
// panic. Other errors are the context's error, an error after another panic, and an error because the loop has ended.
func (l *Loop) Join(ctx context.Context, n view.Node, moved func(Path)) (*Proxy, error) {
	e := &joinRequest{node: n, moved: moved, done: make(chan struct{})}
	enter := func() {
		if l.planner == nil || ctx.Err() != nil {
			e.end(nil, ErrNotReady)
			return
		}
		l.await(func() { l.startJoin(e) })
	}
	if err := l.call(ctx, enter); err != nil {
		return nil, err
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		_ = l.call(context.Background(), func() { l.cancelJoin(e) }) // fails only after the loop's end
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

// end answers the request.
func (e *joinRequest) end(p *Proxy, err error) {
	e.proxy, e.err = p, err
	close(e.done)
}

// answered reports whether the request has been answered.
func (e *joinRequest) answered() bool { return e.proxy != nil || e.err != nil }

// startJoin queues the request if the view lacks a layer that takes long to plan. In all other cases it completes the
// join at once.
func (l *Loop) startJoin(e *joinRequest) {
	if l.planner == nil && !e.answered() { // restore has failed
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
		l.finishJoin(e, err == nil)
		return
	}
	i := slices.IndexFunc(l.joinQueues, func(q *joinQueue) bool { return q.namespace == e.node.Namespace })
	if i < 0 {
		i, l.joinQueues = len(l.joinQueues), append(l.joinQueues, &joinQueue{namespace: e.node.Namespace})
	}
	l.joinQueues[i].requests = append(l.joinQueues[i].requests, e)
}

// planJoins plans layers that queued requests lack, for one turn of the loop (a limited time). It alternates between
// the namespaces, and plans the first request of each.
func (l *Loop) planJoins(began time.Time) {
	over := l.overAt(began)
	for len(l.joinQueues) > 0 {
		q, more := l.joinQueues[0], false
		l.joinQueues = append(l.joinQueues[1:], q)
		e := q.requests[0]
		err := l.guarded(func() {
			if e.join == nil { // restore has replaced the planner
				e.join = l.planner.BeginJoin(e.node)
			}
			more = e.join.Step(over)
		})
		if !more {
			l.finishJoin(e, err == nil)
		}
		if over() {
			return
		}
	}
}

// finishJoin answers a request whose layers are planned. The argument made is false if planning the layers has
// panicked.
func (l *Loop) finishJoin(e *joinRequest, made bool) {
	l.removeJoin(e)
	h, err := l.join(e, made)
	if err != nil {
		e.end(nil, err)
		return
	}
	p := &Proxy{Handle: h, loop: l, moved: e.moved}
	defer e.end(p, nil)
	l.proxies[p.Handle] = p
	l.open() // for credentials with which its agent fetches modules
	l.updateGauges()
}

// cancelJoin ends a request whose caller does not wait any more.
func (l *Loop) cancelJoin(e *joinRequest) {
	if e.answered() {
		return
	}
	l.removeJoin(e)
	if e.join != nil {
		e.join.Drop()
	}
	e.end(nil, context.Canceled)
}

// removeJoin removes a request from its queue.
func (l *Loop) removeJoin(e *joinRequest) {
	l.joinQueues = slices.DeleteFunc(l.joinQueues, func(q *joinQueue) bool {
		q.requests = slices.DeleteFunc(q.requests, func(other *joinRequest) bool { return other == e })
		return len(q.requests) == 0
	})
}

// restartJoins makes the queued joins begin again with another planner. Without a planner they end with ErrNotReady.
func (l *Loop) restartJoins() {
	for _, q := range l.joinQueues {
		for _, e := range q.requests {
			if e.join = nil; l.planner == nil {
				e.end(nil, ErrNotReady)
			}
		}
	}
	if l.planner == nil {
		l.joinQueues = nil
	}
}
