package kv

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/obs"
)

// spaceEvery is the interval of the requests for etcd's size. One process that writes at its maximum rate fills 20 % of
// the quota in a quarter of an hour.
const spaceEvery = time.Minute

// A history that is not compacted is reported after sampleEvery while etcd is filling, and after keptForLong otherwise.
const (
	sampleEvery    = time.Hour
	keptForLong    = 24 * time.Hour
	historySamples = 26 // largest number of samples
)

// Space warns when etcd has used 80 % of its quota. At 100 % etcd refuses all writes. For an external etcd, Space also
// warns about a history that is not compacted. It does not compact the history, because other users of etcd may need
// it. One goroutine calls Run or Measure; any goroutine may call Warning. Set the fields before the first call.
type Space struct {
	Size  func(context.Context) (Size, error) // Store.Size; not nil
	Quota int64                               // in bytes, for an etcd that does not report its quota (before 3.6); 0: not known
	// Keeps reports whether etcd has the history at a revision (Store.Keeps); nil: etcd compacts itself.
	Keeps func(ctx context.Context, revision int64) (bool, error)
	// Room returns the reason why an etcd in this process cannot write to its disk, or "". If Room is nil, the disk is
	// not watched.
	Room func() string
	Log  *slog.Logger // not nil

	last    atomic.Pointer[measured]
	samples []sample // revisions that are not compacted, oldest first; owned by the goroutine that calls Run or Measure
}

// measured is the result of the last measurement.
type measured struct {
	Size
	kept time.Duration // age of the oldest sampled revision that etcd still has
}

// sample is a revision with the time at which it was the newest.
type sample struct {
	revision int64
	at       time.Time
}

// Run measures at once and then every minute until ctx ends. It returns the context's error. A measurement takes 30 s
// at most, and its failure is only logged.
func (s *Space) Run(ctx context.Context) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, spaceEvery/2)
		err := s.Measure(asked, time.Now())
		cancel()
		if err != nil {
			s.Log.Debug("the request for the size of etcd failed", obs.KeyError, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Measure measures once, sets the metrics, and logs changes of the warning. The argument now is the present time. After
// an error of Size the previous result stays. After an error of Keeps the new size is stored, without the age of the
// history. Measure returns either error.
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

// history returns the age of the oldest sampled revision that etcd still has; 0 without Keeps.
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

// record stores a measurement, and sets the metrics. It logs the beginning and the end of a warning, and every
// measurement while etcd is full.
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
		s.Log.Info("the warning about the space of etcd is over", "bytes", size.File)
	}
}

// room returns the result of Room; empty if Room is nil.
func (s *Space) room() string {
	if s.Room == nil {
		return ""
	}
	return s.Room()
}

// Warning returns the present warning for the operator, or "". The text is "" before the first measurement too, unless
// Room has a reason. The result full reports whether etcd refuses all writes.
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
		return text + "; etcd writes nothing any more: no configuration is stored, and certificates are issued from allowances alone, until " +
			"it has space (compact, defragment, disarm its alarm, or raise its quota)" + history, true
	}
	return text + "; at 100 % etcd writes nothing any more: defragment it if much is unused, raise its quota, or find out what fills it" +
		history, false
}
