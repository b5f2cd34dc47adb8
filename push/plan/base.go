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

// Base is an independent copy of a plan, for use by one goroutine. Changes of the copy do not affect the live plan.
// Loop.Base makes a Base, and Base.Apply changes it.
type Base struct {
	Planner  *Planner          // the copied planner, at the newest resolved snapshot
	Resolver *resolve.Resolver // the copied resolver, at the newest snapshot of the source that was resolved
	Crashes  *crash.Log        // log of panics; nil: the first panic sets a new log
}

// errUnresolved is the error of Base after a panic of the resolver.
var errUnresolved = errors.New("the newest snapshot cannot be resolved; the server's log says why")

// Base returns a copy of the plan at the newest snapshot. Edits that still wait to be planned are planned in the copy.
// The loop's goroutine copies the parts that change in place, and the caller's goroutine completes the copy. The error
// is ErrNotReady while there is no plan, the context's error, or an error because the loop has ended. A panic while
// resolving, copying or planning is also returned as an error. After an error the result must not be used, even if it
// is not nil.
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

// Afford returns nil if this process has enough memory to plan a change in a copy of the plan. The memory is enough if
// the planned configuration with the change fits Config.Room, if Config.Room is 0, or if the change adds little. If the
// memory is not enough, the error wraps ErrNoRoom, and names the record that grows most. Other errors are the context's
// error, an error after a panic, and an error because the loop has ended.
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

// Apply plans a change of the source in the copy. If c.Old is not the snapshot that Resolver.Source returns, Apply
// plans the difference between that snapshot and c.New in place of c.Edits. The result lists each proxy whose set of
// resources or whose view changed, once, in no particular order. The error is the context's, or an error after a panic.
// After an error the Base must not be used.
func (b *Base) Apply(ctx context.Context, c mirror.Change) (moved []Moved, err error) {
	err = b.guarded(func() { c = b.Resolver.Step(c) })
	if err != nil {
		return nil, err
	}
	if have := b.Planner.latest; have != c.Old { // the plan lacks some records of the source
		c = with(have, c.New.Revision(), c.Edits)
	}
	err = b.plan(ctx, c, &moved)
	return moved, err
}

// Subscribe makes proxies of the copy subscribe to names of Secrets, as Planner.SubscribeSecrets does. The error is an
// error after a panic. After an error the Base must not be used.
func (b *Base) Subscribe(names map[*Handle][]string) error {
	return b.guarded(func() {
		for h, add := range names {
			b.Planner.SubscribeSecrets(h, add, nil)
		}
	})
}

// plan plans a change of the resolved snapshot, until the context ends. The argument moved may be nil.
func (b *Base) plan(ctx context.Context, c mirror.Change, moved *[]Moved) error {
	err := b.guarded(func() {
		yielder := loop.NewPatientYielder()
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
