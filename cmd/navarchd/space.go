package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// spaceEvery is how often etcd is asked how full it is: at the rate at which one process can fill it, 20 % take a quarter of an hour.
const spaceEvery = time.Minute

// space says when etcd has used 80 % of its quota: once that is used up it writes nothing (issue 12, item 10).
type space struct {
	size  func(context.Context) (kv.Size, error)
	quota int64 // where etcd does not say it (before 3.6)
	log   *slog.Logger
	last  atomic.Pointer[kv.Size]
}

// run asks until ctx ends.
func (s *space) run(ctx context.Context) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, spaceEvery/2)
		size, err := s.size(asked)
		cancel()
		if err == nil {
			s.saw(size)
		} else {
			s.log.Debug("how full etcd is could not be asked", obs.KeyError, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// saw takes a size, and says so where an alarm begins or ends.
func (s *space) saw(size kv.Size) {
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
		s.log.Info("etcd has space again", "bytes", size.File)
	}
}

// warning is what an operator should know; empty: nothing.
func (s *space) warning() string {
	size := s.last.Load()
	if size == nil || !size.Filling() {
		return ""
	}
	text := fmt.Sprintf("the store is %d %% full: %d of %d bytes, %d of them in use", 100*size.File/max(size.Quota, 1), size.File, size.Quota, size.InUse)
	if size.Full {
		return text + "; etcd writes nothing any more: no configuration is taken, and no certificates but from allowances are issued, until it has room (compact, defragment, disarm its alarm, or raise its quota)"
	}
	return text + "; at 100 % etcd writes nothing any more: defragment it where much is not in use, raise its quota, or find who fills it"
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
