package mirror

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// follower is the state of Run's loop. Only Run's goroutine uses it. The follower outlives Run, so that the next Run
// continues from its revision.
type follower struct {
	*Mirror
	fold     *fold
	at       kv.Position   // the store was read up to here; zero: it must be listed first
	seen     kv.Position   // the newest known position of the store
	behind   int           // consecutive checks that saw a newer head than the watch delivered
	patience int           // number of such checks that are tolerated before the watch is restarted
	status   Status        // the last published status
	restored bool          // the snapshot on disk was tried
	held     []Held        // kinds whose records contradict the head, even when the store is listed (held kinds)
	relist   time.Duration // pause before the store is listed again because of held kinds
	lines    *obs.Sampled  // log lines about held kinds
}

// Pauses before the loop repeats a failed step.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 3 * time.Second
)

// leastPatience is the initial value of patience. Checks are CheckEvery apart.
const leastPatience = 2

var errStuck = errors.New("the watch does not deliver the newest head of the store")

// Run follows the store until ctx ends, and returns the error of ctx. While etcd fails, the last complete snapshot
// stays in use. Failures of etcd are in Status. With Config.Disk, Run also writes the snapshot file, for the last time
// after ctx has ended. One Run may be active at a time. A later Run continues from the revision of the previous one.
func (m *Mirror) Run(ctx context.Context) error {
	if m.resume == nil {
		m.resume = &follower{Mirror: m, status: m.Status(), fold: newFold(), patience: leastPatience, relist: firstRelist,
			lines: obs.NewSampled(m.cfg.Logger)}
		m.resume.fold.base.place = m.Status().Place
	}
	f := m.resume
	if m.cfg.Disk != nil {
		kept := make(chan struct{})
		go func() { defer close(kept); m.keep(ctx) }()
		defer func() { <-kept }()
	}
	pause := firstPause
	for ctx.Err() == nil {
		before := f.at
		err := f.follow(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, kv.ErrCompacted):
			m.cfg.Logger.Info("etcd compacted what was not read yet, listing again", slog.Int64("revision", f.at.Revision))
			f.at = kv.Position{}
		case errors.Is(err, errGap):
			m.cfg.Logger.Error("listing the store again", slog.Any("error", err))
			f.at = kv.Position{}
		case errors.Is(err, errDiffers):
			m.cfg.Logger.Info("listing the store again", slog.Any("error", err))
			f.at = kv.Position{}
		case errors.Is(err, kv.ErrRegressed), errors.Is(err, kv.ErrClusterChanged), errors.Is(err, kv.ErrRolledBack):
			f.another(ctx)
		default:
			f.setStatus(func(s *Status) { s.Away = err })
			f.restore(time.Now(), "etcd does not answer: serving the snapshot on disk until it does")
		}
		if pause = min(2*pause, maxPause); f.at != before {
			pause = firstPause
		}
		_ = loop.Pause(ctx, pause/2+rand.N(pause/2))
	}
	return ctx.Err()
}

// follow lists the store if necessary. It then applies the changes of the store until the first error.
func (f *follower) follow(ctx context.Context) error {
	if f.at.Revision == 0 {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := f.cfg.Source.Watch(ctx, f.at)
	tick := time.NewTicker(f.cfg.CheckEvery)
	defer tick.Stop()
	answers := make(chan answer, 1)
	asking := false
	relist := time.NewTimer(f.relist)
	defer relist.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-relist.C:
			if len(f.held) > 0 {
				return errDiffers
			}
		case u, open := <-updates:
			if !open {
				return errors.New("the watch was closed")
			}
			if u.Err != nil {
				return u.Err
			}
			if err := f.fold.follows(u); err != nil {
				return err
			}
			if u.Head != nil && u.Head.Place.Before(f.place()) {
				return kv.ErrRolledBack
			}
			if err := f.update(u); err != nil {
				return err
			}
		case <-tick.C:
			if !asking {
				asking = true
				seen, place := f.seen, f.place()
				go func() { answers <- f.requestStat(ctx, seen, place) }()
			}
		case a := <-answers:
			asking = false
			if err := f.check(a); err != nil {
				return err
			}
		}
	}
}

// list reads the whole store and publishes the differences. It first requests the status, because that request has a
// timeout. The request for the list has no timeout, and could wait for a connection without end.
func (f *follower) list(ctx context.Context) error {
	if a := f.requestStat(ctx, f.seen, f.place()); a.err != nil {
		return a.err
	}
	state, err := f.cfg.Source.Load(ctx, 0)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(state.Contents.Differ(state.Said), known) {
		f.restore(time.Now(), "the stored records contradict the head: serving the last good ones from the snapshot on disk")
	}
	if err := kv.CheckHead(f.seen, f.place(), kv.Stat{Cluster: state.At.Cluster, Revision: state.Store, Head: state.Head}); err != nil {
		return err
	}
	f.at, f.seen = state.At, kv.Position{Cluster: state.At.Cluster, Revision: state.Store}
	change, ok := f.fold.load(state)
	f.listed()
	f.cfg.Logger.Info("listed the store", slog.Int64("revision", state.At.Revision), slog.Int("records", len(state.Values)),
		slog.Bool("complete", state.Complete != 0), slog.Int("edits", len(change.Edits)))
	f.publishUpdate(change, ok)
	if f.cfg.Hooks.Relisted != nil {
		f.hooks.Call(f.cfg.Hooks.Relisted)
	}
	return nil
}

// update applies one revision of the watch. If it returns errDiffers, the store must be listed again.
func (f *follower) update(u kv.Update) error {
	change, ok := f.fold.apply(u)
	f.at.Revision = u.Revision
	f.behind, f.patience = 0, leastPatience
	f.seen.Revision = max(f.seen.Revision, u.Revision)
	err := f.watched()
	f.publishUpdate(change, ok)
	return err
}

// publishUpdate publishes the change, if ok is true, and the status. A reader of the new status sees the new snapshot,
// and a reader of the snapshot sees the problems in it.
func (f *follower) publishUpdate(change Change, ok bool) {
	problems := f.fold.problems()
	if ok {
		f.setStatus(func(s *Status) { s.Problems = problems })
		f.publish(change)
	}
	f.setStatus(func(s *Status) {
		s.Away, s.Head, s.Seen, s.Problems, s.Unknown = nil, f.fold.head, f.seen, problems, f.fold.base.unknown
		s.Held, s.Unchecked, s.Place = f.held, f.fold.unchecked, f.place()
		if ok {
			s.Revision, s.Restored = change.New.Revision(), time.Time{}
		}
	})
}

// answer is a status of the store, with the newest position and place that were known when it was requested. The watch
// may deliver newer changes before the answer is processed.
type answer struct {
	asked kv.Position
	place kv.Place
	stat  kv.Stat
	err   error
}

// check returns an error if the store is older than what was known at the time of the request (kv.CheckHead).
func (a answer) check() error { return kv.CheckHead(a.asked, a.place, a.stat) }

// requestStat requests a status of the store.
func (m *Mirror) requestStat(ctx context.Context, seen kv.Position, place kv.Place) answer {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	stat, err := m.cfg.Source.Stat(ctx)
	return answer{seen, place, stat, err}
}

// check compares a status of the store with the state that was read. It detects a watch that died silently, and a store
// that went back to an older state. From such a store, a watch delivers nothing until the store reaches the watch's
// revision again.
func (f *follower) check(a answer) error {
	if a.err != nil {
		f.setStatus(func(s *Status) { s.Away = a.err })
		return nil // the watch resumes by itself
	}
	if err := a.check(); err != nil {
		return err
	}
	if err := a.asked.Check(a.stat); err != nil {
		return err // the store must be listed again
	}
	f.seen.Revision = max(f.seen.Revision, a.stat.Revision)
	f.setStatus(func(s *Status) { s.Away, s.Seen = nil, f.seen })
	if a.stat.Head.Revision <= f.fold.head.Revision {
		f.behind = 0
		return nil
	}
	if f.behind++; f.behind <= f.patience {
		return nil
	}
	f.behind, f.patience = 0, 2*f.patience // the watch may only be slow, so the next watch gets more time
	return errStuck
}

// setStatus edits and publishes the status, logs changes of alarms and problems, and calls their hooks.
func (f *follower) setStatus(edit func(*Status)) {
	was := f.status
	edit(&f.status)
	now := f.status
	f.Mirror.status.Store(&now)
	log, hooks := f.cfg.Logger, f.cfg.Hooks
	if (was.Alarm == nil) != (now.Alarm == nil) {
		if now.Alarm != nil {
			log.Error("the store was replaced, or its state is older than what was read before: the last snapshot stays in use",
				slog.Any("error", now.Alarm))
		} else {
			log.Warn("the alarm about the store is over")
		}
		if hooks.Alarm != nil {
			f.hooks.Call(func() { hooks.Alarm(now.Alarm) })
		}
	}
	if (was.Away == nil) != (now.Away == nil) {
		if now.Away != nil {
			log.Warn("etcd does not answer: the last snapshot stays in use", slog.Any("error", now.Away))
		} else {
			log.Info("etcd answers again")
		}
		if hooks.Contact != nil {
			f.hooks.Call(func() { hooks.Contact(now.Away) })
		}
	}
	f.logHeld(was.Held, now.Held)
	if was.Unchecked != now.Unchecked && now.Unchecked != "" {
		log.Warn("changes to the store by other writers than the leader are not detected", slog.String("reason", now.Unchecked))
	}
	if !slices.Equal(was.Unknown, now.Unknown) {
		logUnknown(log, was.Unknown, now.Unknown)
	}
	if !sameProblems(was.Problems, now.Problems) {
		for _, p := range now.Problems {
			log.Error("a stored value does not decode", slog.String("problem", p.String()))
		}
		if hooks.Problems != nil {
			f.hooks.Call(func() { hooks.Problems(now.Problems) })
		}
	}
}

// maxUnknownLines bounds the log lines about new records of unknown kinds.
const maxUnknownLines = 5

// logUnknown logs new records of unknown kinds, up to maxUnknownLines, and the number of the others.
func logUnknown(log *slog.Logger, was, now []model.Unknown) {
	lines, known := 0, map[model.Unknown]bool{}
	for _, u := range was {
		known[u] = true
	}
	for _, u := range now {
		if known[u] {
			continue
		}
		if lines++; lines <= maxUnknownLines {
			log.Warn("a stored record was written by a newer build", slog.String("problem", u.String()))
		}
	}
	if lines > maxUnknownLines {
		log.Warn("more stored records were written by a newer build: /debug/problems lists them", slog.Int("records", lines-maxUnknownLines))
	}
}

func sameProblems(a, b []Problem) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Path != b[i].Path || a[i].Kept != b[i].Kept || a[i].Err.Error() != b[i].Err.Error() {
			return false
		}
	}
	return true
}
