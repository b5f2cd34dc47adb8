package kv

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/obs"
)

// spaceEvery is the interval of the requests for etcd's size: at the rate at which one process can fill it, 20 % take a
// quarter of an hour.
const spaceEvery = time.Minute

// History that was not compacted for sampleEvery is reported if etcd fills, and for keptForLong in any case.
const (
	sampleEvery    = time.Hour
	keptForLong    = 24 * time.Hour
	historySamples = 26
)

// Space says when etcd has used 80 % of its quota: once that is used up it writes nothing. Of an
// etcd of the operator's it also says where nobody compacts its history, which makes it fill; it does not do that
// itself: others may use that etcd.
type Space struct {
	Size  func(context.Context) (Size, error) // Store.Size
	Quota int64                               // in bytes, for an etcd that does not report its quota (before 3.6)
	// Keeps reports whether etcd has the history at a revision (Store.Keeps); nil: etcd compacts itself.
	Keeps func(ctx context.Context, revision int64) (bool, error)
	// Room says why an etcd in this process writes nothing, for want of room on its disk; empty: there is room; nil: that
	// is not known.
	Room func() string
	Log  *slog.Logger

	last    atomic.Pointer[measured]
	samples []sample // revisions that are not compacted, oldest first; owned by the goroutine that calls Run or Measure
}

// measured is the result of the last measurement.
type measured struct {
	Size
	kept time.Duration // how long history has not been compacted, as far as this process knows
}

// sample is a revision with the time at which it was the newest.
type sample struct {
	revision int64
	at       time.Time
}

// Run measures once a minute until ctx ends, and returns its error.
func (s *Space) Run(ctx context.Context) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, spaceEvery/2)
		err := s.Measure(asked, time.Now())
		cancel()
		if err != nil {
			s.Log.Debug("how full etcd is could not be asked", obs.KeyError, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Measure measures once. An error means that etcd did not answer; the previous result stays.
func (s *Space) Measure(ctx context.Context, now time.Time) error {
	size, err := s.Size(ctx)
	obs.SilentEtcd.Set(float64(size.Silent))
	if err != nil {
		if s.room() != "" {
			obs.StoreAlarm.WithLabelValues("space").Set(1)
		}
		return err
	}
	kept, err := s.history(ctx, size.Revision, now)
	s.record(measured{size, kept})
	return err
}

// history returns how long history has not been compacted.
func (s *Space) history(ctx context.Context, revision int64, now time.Time) (time.Duration, error) {
	if s.Keeps == nil {
		return 0, nil
	}
	for len(s.samples) > 0 && s.samples[0].revision < revision {
		kept, err := s.Keeps(ctx, s.samples[0].revision)
		if err != nil {
			return 0, err
		}
		if kept {
			break
		}
		s.samples = s.samples[1:]
	}
	switch n := len(s.samples); {
	case n > 0 && s.samples[n-1].revision == revision: // no write since the last sample
		s.samples[n-1].at = now
	case n == 0 || now.Sub(s.samples[n-1].at) >= sampleEvery:
		if s.samples = append(s.samples, sample{revision, now}); n >= historySamples {
			s.samples = append(s.samples[:1], s.samples[2:]...)
		}
	}
	return now.Sub(s.samples[0].at), nil
}

// record stores a measurement in the metrics, and logs the beginning and the end of a warning.
func (s *Space) record(size measured) {
	if size.Quota == 0 {
		size.Quota = s.Quota
	}
	was, _ := s.Warning()
	s.last.Store(&size)
	obs.StoreBytes.WithLabelValues("file").Set(float64(size.File))
	obs.StoreBytes.WithLabelValues("in_use").Set(float64(size.InUse))
	obs.StoreBytes.WithLabelValues("quota").Set(float64(size.Quota))
	filling := 0.0
	if size.Filling() || s.room() != "" {
		filling = 1
	}
	obs.StoreAlarm.WithLabelValues("space").Set(filling)
	switch is, _ := s.Warning(); {
	case is != "" && (was == "" || size.Full):
		s.Log.Warn(is)
	case is == "" && was != "":
		s.Log.Info("etcd has enough space again", "bytes", size.File)
	}
}

// room returns Room's answer.
func (s *Space) room() string {
	if s.Room == nil {
		return ""
	}
	return s.Room()
}

// Warning is what an operator should know, and whether etcd writes nothing any more; an empty text: nothing.
func (s *Space) Warning() (text string, full bool) {
	if why := s.room(); why != "" {
		return why, true
	}
	size := s.last.Load()
	if size == nil {
		return "", false
	}
	history := ""
	if size.kept >= sampleEvery {
		history = fmt.Sprintf("nobody has compacted the history of the store for %d hours: start etcd with --auto-compaction-mode=periodic "+
			"--auto-compaction-retention=1h, or compact it (etcdctl compact)", size.kept/time.Hour)
	}
	if !size.Filling() {
		if size.kept >= keptForLong {
			return history, false
		}
		return "", false
	}
	if history != "" {
		history = "; " + history
	}
	text = fmt.Sprintf("the store is %d %% full: %d of %d bytes, %d of them in use", 100*size.File/max(size.Quota, 1), size.File, size.Quota,
		size.InUse)
	if size.Full {
		return text + "; etcd writes nothing any more: no configuration is taken, and no certificates but from allowances are issued, until " +
			"it has room (compact, defragment, disarm its alarm, or raise its quota)" + history, true
	}
	return text + "; at 100 % etcd writes nothing any more: defragment it where much is not in use, raise its quota, or find who fills it" +
		history, false
}
