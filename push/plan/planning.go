package plan

import (
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// maxTurn is the duration after which the planning of configuration pauses. In the pause, the fast path can plan
// endpoints.
const maxTurn = 5 * time.Millisecond

// inProgress is an unfinished plan of configuration. The loop continues it in turns of at most maxTurn.
type inProgress struct {
	began    time.Time
	revision int64
	span     model.Span
	edits    []mirror.Edit
	spent    time.Duration
}

// plan plans all edits and joins that are due. It returns the time until further work is due.
func (l *Loop) plan(now time.Time) time.Duration {
	wait := time.Hour
	if l.planner == nil {
		return wait
	}
	if l.inProgress == nil {
		wait = l.forget(now)
		if !now.Before(l.nextAuthorise) {
			l.authorise(now)
		}
		wait = min(wait, l.nextAuthorise.Sub(now))
	}
	awaited := len(l.waiting) > 0 // a caller waits for the plan, so nothing is delayed
	if in, waits := l.endpoints.due(now); waits {
		if in <= 0 || awaited {
			l.planEndpoints(now)
		} else {
			wait = min(wait, in)
		}
	}
	if l.inProgress != nil {
		l.resume(time.Now())
		return 0 // to continue, or to plan what has become due meanwhile
	}
	in, waits := l.config.due(now)
	if waits && (in <= 0 || awaited) {
		l.apply(now)
		return 0
	}
	if waits {
		wait = min(wait, in)
	}
	l.wake()
	if len(l.joinQueues) == 0 {
		return wait
	}
	l.planJoins(time.Now())
	return 0
}

// planEndpoints plans the waiting edits of endpoints on the fast path. If some of them also have to be planned on the
// configuration path, it queues them there.
func (l *Loop) planEndpoints(now time.Time) {
	edits, of := l.endpointEdits.Take(), l.spans[Fast]
	l.spans[Fast] = model.Span{}
	moved, rest := l.planner.PlanEndpoints(mirror.Change{New: l.newest, Edits: edits}, l.pending.Len() > 0)
	l.good = l.planner.Snapshot()
	l.endpoints.started(now)
	obs.PushTriggers.WithLabelValues("endpoint").Inc()
	if len(rest) > 0 {
		l.pending.Add(rest)
		l.spans[Slow] = l.spans[Slow].Join(of)
		l.config.note(now, l.pending.Len(), false)
	}
	l.publishing(Fast, of, edits, moved)
	l.notify(moved)
	l.planned(Fast, l.newest.Revision(), now, len(edits)-len(rest), len(moved))
}

// planned reports a finished plan to Config.Planned. The caller has already notified the streams of all affected
// proxies.
func (l *Loop) planned(path Path, revision int64, began time.Time, edits, moved int) {
	l.notified.Store(l.planner.Revision())
	if l.cfg.Planned != nil {
		l.watchPlanned.Call(func() { l.cfg.Planned(revision, path, began, edits, moved) })
	}
}

// apply begins to plan the waiting configuration.
func (l *Loop) apply(now time.Time) {
	if l.endpoints.waits { // both paths have to read the same snapshot
		l.planEndpoints(now)
	}
	edits := l.pending.Take()
	obs.Debounce.Observe(l.config.started(now).Seconds())
	l.inProgress = &inProgress{began: now, revision: l.newest.Revision(), span: l.spans[Slow], edits: edits}
	l.spans[Slow] = model.Span{}
	l.planner.Begin(mirror.Change{New: l.newest, Edits: edits})
	l.resume(now)
}

// overAt returns a function that reports whether the present turn is over. The argument began is the start of the turn.
// The planner calls the function after each piece of work. The function also yields the processor to other goroutines.
func (l *Loop) overAt(began time.Time) func() bool {
	yielder := loop.NewYielder()
	return func() bool {
		yielder.Yield()
		return time.Since(began) >= l.turn
	}
}

// resume continues the plan of configuration for a turn.
func (l *Loop) resume(began time.Time) {
	if l.planner.Step(l.overAt(began)) {
		l.inProgress.spent += time.Since(began)
		return
	}
	l.finish(began)
}

// finish plans the rest of the change, and notifies the proxies whose sets have changed.
func (l *Loop) finish(began time.Time) {
	moved, g := l.planner.End(), l.inProgress
	l.inProgress, l.good = nil, l.planner.Snapshot()
	now := time.Now()
	l.config.spent(now, len(g.edits), g.spent+now.Sub(began))
	obs.PushTriggers.WithLabelValues("config").Inc()
	if l.pending.Len() == 0 && l.newest.Revision() > g.revision {
		l.endpoints.waits = true // there is nothing to plan, but the fast path publishes the new revision
	}
	l.updateGauges()
	l.authorise(now)
	l.publishing(Slow, g.span, g.edits, moved)
	l.notify(moved)
	l.planned(Slow, g.revision, g.began, len(g.edits), len(moved))
}

// drop ends an unfinished plan when the loop ends.
func (l *Loop) drop() {
	if l.planner != nil {
		l.planner.Drop()
	}
}
