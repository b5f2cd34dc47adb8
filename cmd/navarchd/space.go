package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// spaceEvery is how often etcd is asked how full it is: at the rate at which one process can fill it, 20 % take a quarter of an hour.
const spaceEvery = time.Minute

// What nobody has compacted for so long is named where etcd fills, and in any case.
const (
	sampleEvery    = time.Hour
	keptForLong    = 24 * time.Hour
	historySamples = 26
)

// space says when etcd has used 80 % of its quota: once that is used up it writes nothing (issue 12, item 10). Of an etcd of the
// operator's it also says where nobody compacts its history, which makes it fill; it does not do that itself: others may use that etcd.
type space struct {
	size  func(context.Context) (kv.Size, error)
	quota int64 // where etcd does not say it (before 3.6)
	// keeps says whether history at a revision is there (kv.Store.Keeps); nil: the etcd compacts itself.
	keeps func(ctx context.Context, revision int64) (bool, error)
	log   *slog.Logger
	last  atomic.Pointer[looked]

	samples []sample // revisions that are not compacted, the oldest first; run's
}

// looked is what was found out last.
type looked struct {
	kv.Size
	kept time.Duration // for how long history has not been compacted, as far as this process knows
}

// sample is a revision, and when it was the newest.
type sample struct {
	revision int64
	at       time.Time
}

// part is what that adds to a process.
func (s *space) part() part {
	return part{tasks: []loop.Task{{Name: "space", Run: s.run}}, notes: []func() []string{s.notes}}
}

// notes are what an operator should know.
func (s *space) notes() []string {
	if text := s.warning(); text != "" {
		return []string{text}
	}
	return nil
}

// run asks until ctx ends.
func (s *space) run(ctx context.Context) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, spaceEvery/2)
		err := s.look(asked, time.Now())
		cancel()
		if err != nil {
			s.log.Debug("how full etcd is could not be asked", obs.KeyError, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look asks once.
func (s *space) look(ctx context.Context, now time.Time) error {
	size, err := s.size(ctx)
	if err != nil {
		return err
	}
	kept, err := s.history(ctx, size.Revision, now)
	s.saw(looked{size, kept})
	return err
}

// history is for how long nobody has compacted it.
func (s *space) history(ctx context.Context, revision int64, now time.Time) (time.Duration, error) {
	if s.keeps == nil {
		return 0, nil
	}
	for len(s.samples) > 0 && s.samples[0].revision < revision {
		kept, err := s.keeps(ctx, s.samples[0].revision)
		if err != nil {
			return 0, err
		}
		if kept {
			break
		}
		s.samples = s.samples[1:]
	}
	switch n := len(s.samples); {
	case n > 0 && s.samples[n-1].revision == revision: // it still is the newest
		s.samples[n-1].at = now
	case n == 0 || now.Sub(s.samples[n-1].at) >= sampleEvery:
		if s.samples = append(s.samples, sample{revision, now}); n >= historySamples {
			s.samples = append(s.samples[:1], s.samples[2:]...)
		}
	}
	return now.Sub(s.samples[0].at), nil
}

// saw takes what was found out, and says so where an alarm begins or ends.
func (s *space) saw(size looked) {
	if size.Quota == 0 {
		size.Quota = s.quota
	}
	was := s.warning()
	s.last.Store(&size)
	obs.StoreBytes.WithLabelValues("file").Set(float64(size.File))
	obs.StoreBytes.WithLabelValues("in_use").Set(float64(size.InUse))
	obs.StoreBytes.WithLabelValues("quota").Set(float64(size.Quota))
	obs.StoreAlarm.WithLabelValues("space").Set(flag(size.Filling()))
	switch is := s.warning(); {
	case is != "" && (was == "" || size.Full):
		s.log.Warn(is)
	case is == "" && was != "":
		s.log.Info("etcd has space again, or is compacted", "bytes", size.File)
	}
}

// warning is what an operator should know; empty: nothing.
func (s *space) warning() string {
	size := s.last.Load()
	if size == nil {
		return ""
	}
	history := ""
	if size.kept >= sampleEvery {
		history = fmt.Sprintf("nobody has compacted the history of the store for %d hours: start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=1h, or compact it (etcdctl compact)", size.kept/time.Hour)
	}
	if !size.Filling() {
		if size.kept >= keptForLong {
			return history
		}
		return ""
	}
	if history != "" {
		history = "; " + history
	}
	text := fmt.Sprintf("the store is %d %% full: %d of %d bytes, %d of them in use", 100*size.File/max(size.Quota, 1), size.File, size.Quota, size.InUse)
	if size.Full {
		return text + "; etcd writes nothing any more: no configuration is taken, and no certificates but from allowances are issued, until it has room (compact, defragment, disarm its alarm, or raise its quota)" + history
	}
	return text + "; at 100 % etcd writes nothing any more: defragment it where much is not in use, raise its quota, or find who fills it" + history
}

func (s *space) problems() []inspect.Problem {
	text := s.warning()
	if text == "" {
		return nil
	}
	severity := problem.Warning
	if s.last.Load().Full {
		severity = problem.Error
	}
	return []inspect.Problem{{Object: "etcd", Location: "etcd", Code: problem.NotAllowed, Severity: severity, Message: text}}
}
