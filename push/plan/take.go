package plan

import (
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// resolver is resolve.Resolver.
type resolver interface {
	Step(mirror.Change) mirror.Change
	Problems() []model.Problem
}

// take sorts a change into the paths. false: there is none.
func (l *Loop) take(box *loop.Box[mirror.Change]) bool {
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

// follow has the edits of an accepted change wait for their paths.
func (l *Loop) follow(c mirror.Change) {
	l.newest = c.New
	l.latest.Store(c.New)
	if l.planner == nil && len(l.proxies) > 0 { // see restore
		l.restore()
		return
	}
	l.safely(func() { l.sort(c) })
}

// accepted resolves a change of the source and leaves out what is set aside. Where that panics the resolver is half-changed: another one
// begins from scratch. false: that panics too; what is planned stands, and the source's next change is taken whole.
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

// sort has the edits of a change wait for their paths.
func (l *Loop) sort(c mirror.Change) {
	if l.planner == nil {
		l.planner = New(Settings{Pool: l.cfg.Pool, Snapshot: c.New, Cluster: l.cfg.Cluster, fault: l.fault})
		l.good = c.New
		l.show()
		l.notified.Store(l.planner.Revision()) // there are no proxies yet
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
		l.endpoints.waits = true // nothing to plan, but the revision is another
	}
	if len(endpoints) > 0 {
		l.endpointEdits.Add(endpoints)
		l.endpoints.waits = true
	}
	if len(rest) > 0 {
		l.pending.Add(rest)
		l.config.note(now, l.pending.Len())
	}
}
