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

// follower is the loop's own state; Run makes it and no other goroutine touches it. It outlives connections, so that the
// loop goes on by revision.
type follower struct {
	*Mirror
	fold     *fold
	at       kv.Position // read up to here; zero: list first
	seen     kv.Position // the newest that the store was seen at
	behind   int         // checks in a row that saw a head which the watch has not brought
	patience int         // how many of them are too many
	status   Status      // as last told
	restored bool        // the snapshot on disk was looked for
	held     []Held      // as a list said
	relist   time.Duration
	lines    *obs.Sampled // about held kinds
}

// How long the loop waits before it tries again what failed.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 3 * time.Second
)

// leastPatience is after how many checks without anything new, that is for at least so many times CheckEvery, a watch is
// begun again when the store has more.
const leastPatience = 2

var errStuck = errors.New("the watch does not bring what the store has")

// Run reads until the context ends. Whatever happens to etcd, the last complete snapshot stands. One Run at a time; a later
// one goes on where the last one ended. Its error is the context's alone: what is wrong with etcd is in Status.
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

// follow lists if need be, and watches until something is wrong.
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

// list reads everything, and takes what differs. It asks first whether anybody is there: a list may take long, and a client
// without a connection waits.
func (f *follower) list(ctx context.Context) error {
	if a := f.requestStat(ctx, f.seen, f.place()); a.err != nil {
		return a.err
	}
	state, err := f.cfg.Source.Load(ctx, 0)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(state.Contents.Differ(state.Said), known) {
		f.restore(time.Now(), "the stored records are not what the head says: the snapshot on disk has the last good ones")
	}
	if err := kv.CheckHead(f.seen, f.place(), kv.Stat{Cluster: state.At.Cluster, Revision: state.Store, Head: state.Head}); err != nil {
		return err
	}
	f.at, f.seen = state.At, kv.Position{Cluster: state.At.Cluster, Revision: state.Store}
	change, ok := f.fold.load(state)
	f.listed()
	f.cfg.Logger.Info("listed the store", slog.Int64("revision", state.At.Revision), slog.Int("records", len(state.Values)),
		slog.Bool("complete", state.Complete != 0), slog.Int("edits", len(change.Edits)))
	f.took(change, ok)
	if f.cfg.Hooks.Relisted != nil {
		f.hooks.Call(f.cfg.Hooks.Relisted)
	}
	return nil
}

// update takes one revision of the watch. errDiffers: it is to be listed again.
func (f *follower) update(u kv.Update) error {
	change, ok := f.fold.apply(u)
	f.at.Revision = u.Revision
	f.behind, f.patience = 0, leastPatience
	f.seen.Revision = max(f.seen.Revision, u.Revision)
	err := f.watched()
	f.took(change, ok)
	return err
}

// took publishes a change, if there is one, and tells what the fold knows. Who sees the status sees the snapshot; who sees
// the snapshot sees what is missing from it.
func (f *follower) took(change Change, ok bool) {
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

// answer is what the store said of itself, and what was known when it was asked: by the time the answer is read, the
// watch may have brought more.
type answer struct {
	asked kv.Position
	place kv.Place
	stat  kv.Stat
	err   error
}

// check is kv.CheckHead of the answer.
func (a answer) check() error { return kv.CheckHead(a.asked, a.place, a.stat) }

func (m *Mirror) requestStat(ctx context.Context, seen kv.Position, place kv.Place) answer {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	stat, err := m.cfg.Source.Stat(ctx)
	return answer{seen, place, stat, err}
}

// check compares what the store says of itself with what was read. A watch alone would not notice a store that went back
// (it would wait for a revision that is long in coming) or a watch that died in silence.
func (f *follower) check(a answer) error {
	if a.err != nil {
		f.setStatus(func(s *Status) { s.Away = a.err })
		return nil // the watch goes on by itself when etcd is back
	}
	if err := a.check(); err != nil {
		return err
	}
	if err := a.asked.Check(a.stat); err != nil {
		return err // it goes on in another place
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
	f.behind, f.patience = 0, 2*f.patience // it may be slow: the next watch is given longer
	return errStuck
}

// setStatus publishes the status, and says once what changed for the worse or the better.
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
		log.Warn("changes that others than the leader make to the store are not noticed", slog.String("reason", now.Unchecked))
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

// maxUnknownLines bounds the lines that one change brings about.
const maxUnknownLines = 5

// logUnknown says which records came that this build does not know, and how many more.
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
