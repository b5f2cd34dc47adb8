package mirror

import (
	"context"
	"fmt"
	"time"

	"navarch.io/navarch/store/kv"
)

// place returns the position, in the sequence of heads, of the newest state that was read, or of the snapshot on disk.
func (f *follower) place() kv.Place { return f.fold.base.place }

// another handles a store that was replaced, or that has gone back to an older state. If the state of the store is not
// older than what was read, the store is listed again. Otherwise the last snapshot stays in use, and an alarm is
// raised. The alarm ends when the original store is back, a leader has compared the store with its sources, or an
// operator has adopted the store.
func (f *follower) another(ctx context.Context) {
	f.restore(time.Now(), "the store has older state than the snapshot on disk: serving that")
	tick := time.NewTicker(f.cfg.CheckEvery)
	defer tick.Stop()
	for {
		a := f.requestStat(ctx, f.seen, f.place())
		why := a.check()
		switch {
		case a.err != nil && f.status.Alarm == nil:
			f.setStatus(func(s *Status) { s.Away = a.err })
			return
		case a.err != nil:
		case why == nil:
			f.listAgain(a)
			return
		default:
			f.setStatus(func(s *Status) { s.Alarm, s.Away = fmt.Errorf("%w. %s", why, f.wayOut()), nil })
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// listAgain makes Run list a store whose state is not older than what was read.
func (f *follower) listAgain(a answer) {
	if a.asked.Check(a.stat) != nil {
		f.cfg.Logger.Warn("etcd was restored or replaced, and its state is not older than what was read before: listing it")
		f.seen = kv.Position{}
	}
	f.at, f.behind = kv.Position{}, 0
	f.setStatus(func(s *Status) { s.Alarm, s.Away = nil, nil })
}

// wayOut returns the steps of the operator against the alarm.
func (f *follower) wayOut() string {
	if !f.place().Known() {
		return "The last good state is served. If this etcd is the right one, restart this process"
	}
	return fmt.Sprintf("The last good state is served until an ingester has compared the stored records with its configuration. "+
		"If no ingester leads, or the comparison does not end, and the stored records are right: stop the ingesters, "+
		"then run navarchctl store adopt --over %v --yes",
		f.place())
}
