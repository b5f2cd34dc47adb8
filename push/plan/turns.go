package plan

import (
	"time"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
)

// maxTurn is how long configuration is planned before endpoints have their turn.
const maxTurn = 5 * time.Millisecond

// going is a plan of configuration that takes more than one turn.
type going struct {
	began    time.Time
	revision int64
	edits    int
	spent    time.Duration
}

// plan plans what is due, and says how long to wait for what is not.
func (l *Loop) plan(now time.Time) time.Duration {
	wait := time.Hour
	if l.planner == nil {
		return wait
	}
	if l.going == nil {
		wait = l.forget(now)
		if !now.Before(l.askAgain) {
			l.authorise(now)
		}
		wait = min(wait, l.askAgain.Sub(now))
	}
	awaited := len(l.waiting) > 0 // somebody waits, so nothing is put off
	if in, waits := l.endpoints.due(now); waits {
		if in <= 0 || awaited {
			l.planEndpoints(now)
		} else {
			wait = min(wait, in)
		}
	}
	if l.going != nil {
		l.resume(time.Now())
		return 0 // to go on, or to see what has come, and what has become due, while it was planned
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
	if len(l.lines) == 0 {
		return wait
	}
	l.makeForJoins(time.Now())
	return 0
}

func (l *Loop) planEndpoints(now time.Time) {
	edits := l.endpointEdits.Take()
	moved, rest := l.planner.PlanEndpoints(mirror.Change{New: l.newest, Edits: edits}, l.pending.Len() > 0)
	l.good = l.planner.Snapshot()
	l.endpoints.took(now)
	obs.PushTriggers.WithLabelValues("endpoint").Inc()
	if len(rest) > 0 {
		l.pending.Add(rest)
		l.config.note(now, l.pending.Len())
	}
	l.notify(moved)
	l.planned(Fast, l.newest.Revision(), now, len(edits)-len(rest), len(moved))
}

// planned reports a plan that is finished, to Config.Planned, once the streams of all proxies that it moved are notified.
func (l *Loop) planned(path Path, revision int64, began time.Time, edits, moved int) {
	l.notified.Store(l.planner.Revision())
	if l.cfg.Planned != nil {
		l.watchPlanned.Call(func() { l.cfg.Planned(revision, path, began, edits, moved) })
	}
}

// apply begins to plan the configuration that waits.
func (l *Loop) apply(now time.Time) {
	if l.endpoints.waits { // both paths read one snapshot
		l.planEndpoints(now)
	}
	edits := l.pending.Take()
	obs.Debounce.Observe(l.config.took(now).Seconds())
	l.going = &going{began: now, revision: l.newest.Revision(), edits: len(edits)}
	l.planner.Begin(mirror.Change{New: l.newest, Edits: edits})
	l.resume(now)
}

// overAt says, asked after each piece of work, whether a turn is over that began at a time. Others may have the processor in between.
func (l *Loop) overAt(began time.Time) func() bool {
	yielder := loop.NewYielder()
	return func() bool {
		yielder.Yield()
		return time.Since(began) >= l.turn
	}
}

// resume plans configuration for a turn.
func (l *Loop) resume(began time.Time) {
	if l.planner.Step(l.overAt(began)) {
		l.going.spent += time.Since(began)
		return
	}
	l.finish(began)
}

// finish plans what is left of the change, and notifies the proxies whose sets have changed.
func (l *Loop) finish(began time.Time) {
	moved, g := l.planner.End(), l.going
	l.going, l.good = nil, l.planner.Snapshot()
	now := time.Now()
	l.config.spent(now, g.edits, g.spent+now.Sub(began))
	obs.PushTriggers.WithLabelValues("config").Inc()
	if l.pending.Len() == 0 && l.newest.Revision() > g.revision {
		l.endpoints.waits = true // all of the newest is planned, and nobody has said so
	}
	l.show()
	l.authorise(now)
	l.notify(moved)
	l.planned(Slow, g.revision, g.began, g.edits, len(moved))
}

// drop ends a plan that goes on when the loop ends.
func (l *Loop) drop() {
	if l.planner != nil {
		l.planner.Drop()
	}
}
