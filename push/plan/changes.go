package plan

import (
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// resolver has the methods of resolve.Resolver that the loop uses. Tests replace it.
type resolver interface {
	Step(mirror.Change) mirror.Change
	Problems() []model.Problem
}

// applyNewest receives the newest change from the source, if there is one, and queues its edits. It returns false if
// there is no change.
func (l *Loop) applyNewest(box *loop.Box[mirror.Change]) bool {
	c, ok := box.Take()
	if !ok {
		return false
	}
	l.piece(func() {
		if c, ok = l.accepted(c); ok {
			l.follow(c)
		}
	})
	return true
}

// follow queues each edit of an accepted change for its path (fast or slow).
func (l *Loop) follow(c mirror.Change) {
	l.newest = c.New
	l.latest.Store(c.New)
	if l.planner == nil && len(l.proxies) > 0 { // an earlier restore has failed
		l.restore()
		return
	}
	l.safely(func() { l.classify(c) })
}

// accepted resolves a change of the source (push/resolve) and leaves out the excluded records. If the resolver panics,
// it is in an undefined state, so a new resolver resolves the whole snapshot. If the new resolver panics too, the
// result is false. The previous plan then stays in effect, and the source's next snapshot is resolved as a whole.
func (l *Loop) accepted(c mirror.Change) (out mirror.Change, ok bool) {
	if l.resolve != nil && l.guarded(func() { out = l.accept(l.intake.step(l.resolve.Step(c), time.Now())) }) == nil {
		return out, true
	}
	old := l.newest
	if old == nil {
		old = mirror.Empty()
	}
	l.resolve = nil
	ok = l.guarded(func() {
		fresh := l.resolver()
		whole := mirror.Diff(old, fresh.Step(mirror.Diff(mirror.Empty(), c.New)).New)
		whole.Committed = c.Committed
		out = l.accept(l.intake.step(whole, time.Now()))
		l.resolve = fresh
	}) == nil
	return out, ok
}

// classify queues the edits of a change: endpoints for the fast path, other edits for the next plan of configuration.
// Without a planner, it creates a planner from the new snapshot instead.
func (l *Loop) classify(c mirror.Change) {
	if l.planner == nil {
		l.planner = New(Settings{Pool: l.cfg.Pool, Snapshot: c.New, Cluster: l.cfg.Cluster, fault: l.fault})
		l.good = c.New
		l.updateGauges()
		l.notified.Store(l.planner.Revision()) // there are no proxies to notify
		return
	}
	now := time.Now()
	var endpoints, rest []mirror.Edit
	for _, e := range c.Edits {
		obs.InboundUpdates.WithLabelValues(e.Key().Kind.String()).Inc()
		if l.pathOf(e, now) == Fast {
			endpoints = append(endpoints, e)
		} else {
			rest = append(rest, e)
		}
	}
	if len(c.Edits) == 0 && l.pending.Len()+l.endpointEdits.Len() == 0 {
		l.endpoints.waits = true // nothing to plan, but a new revision to publish
	}
	if len(endpoints) > 0 {
		l.endpointEdits.Add(endpoints)
		l.endpoints.waits = true
		l.spans[Fast] = l.spans[Fast].Join(spanOf(c))
	}
	if len(rest) > 0 {
		l.pending.Add(rest)
		l.spans[Slow] = l.spans[Slow].Join(spanOf(c))
		l.config.note(now, l.pending.Len(), standsAlone(rest, c.New))
	}
}
