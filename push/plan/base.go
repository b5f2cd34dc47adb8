package plan

import (
	"context"
	"errors"
	"slices"

	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
)

// Base is a copy of a plan to which changes can be applied beside the live plan. One goroutine may use it.
type Base struct {
	Planner  *Planner          // at the newest snapshot, resolved
	Resolver *resolve.Resolver // at the same snapshot, as the source publishes it
	Crashes  *crash.Log        // where panics are reported; nil for a new log
}

// errUnresolved is the error of Base after a panic of the resolver.
var errUnresolved = errors.New("the newest snapshot cannot be resolved; the server's log says why")

// Base returns a copy of the plan at the newest snapshot. Edits that wait to be planned are planned in the copy. The
// loop is occupied while it copies, not while the caller's goroutine completes the copy. The error is ErrNotReady
// without a snapshot, the context's, or errEnded.
func (l *Loop) Base(ctx context.Context) (b *Base, err error) {
	var f *frozen
	var waiting mirror.Change
	err = l.run(ctx, func() (err error) {
		l.unchanged = true
		if fault := l.guarded(func() { b, f, waiting, err = l.freeze() }); fault != nil {
			return fault
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f.known = l.reports.copy()
	if err := b.guarded(func() { b.Planner = f.fork() }); err != nil {
		return nil, err
	}
	if len(waiting.Edits) == 0 && waiting.New == b.Planner.Snapshot() {
		return b, nil
	}
	return b, b.plan(ctx, waiting, nil)
}

// Afford returns ErrNoRoom if this process has no memory to plan a change in a copy of the plan (Config.Room), the
// context's error, or errEnded.
func (l *Loop) Afford(ctx context.Context, c mirror.Change) error {
	return l.run(ctx, func() (err error) {
		l.unchanged = true
		if fault := l.guarded(func() { err = l.intake.room.afford(c.Edits, l.intake.last) }); fault != nil {
			return fault
		}
		return err
	})
}

// freeze copies the planner, the resolver and the edits that wait.
func (l *Loop) freeze() (b *Base, f *frozen, waiting mirror.Change, err error) {
	r, is := l.resolve.(*resolve.Resolver)
	switch {
	case l.planner == nil:
		return nil, nil, waiting, ErrNotReady
	case !is:
		return nil, nil, waiting, errUnresolved
	}
	waiting = mirror.Change{New: l.newest, Edits: slices.Concat(l.pending.all(), l.endpointEdits.all())}
	return &Base{Resolver: r.Fork(), Crashes: l.cfg.Crashes}, l.planner.freeze(), waiting, nil
}

// Apply plans a change of the source's snapshot, which is Resolver.Source. It returns the proxies whose sets changed,
// in no order. The error is the context's, or that of a panic; the Base is useless afterwards.
func (b *Base) Apply(ctx context.Context, c mirror.Change) (moved []Moved, err error) {
	err = b.guarded(func() { c = b.Resolver.Step(c) })
	if err != nil {
		return nil, err
	}
	if have := b.Planner.latest; have != c.Old { // some records of the source are left out of the plan
		c = with(have, c.New.Revision(), c.Edits)
	}
	err = b.plan(ctx, c, &moved)
	return moved, err
}

// plan plans a change of the resolved snapshot, until the context ends. moved may be nil.
func (b *Base) plan(ctx context.Context, c mirror.Change, moved *[]Moved) error {
	err := b.guarded(func() {
		yielder := loop.NewYielder()
		over := func() bool {
			yielder.Yield()
			return ctx.Err() != nil
		}
		b.Planner.Begin(c)
		if b.Planner.Step(over) {
			return
		}
		if all := b.Planner.End(); moved != nil {
			*moved = all
		}
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		b.Planner.Drop()
	}
	return err
}

// guarded runs f. A panic in f is reported, and returned as the error.
func (b *Base) guarded(f func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			if b.Crashes == nil {
				b.Crashes = crash.New(nil)
			}
			err = b.Crashes.Caught(crash.Plan, fault)
		}
	}()
	f()
	return nil
}
