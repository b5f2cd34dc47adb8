package plan

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// A panic while configuration is planned leaves the planner in an undefined state, but the published sets are
// immutable. So another planner plans the same proxies from scratch. It plans the newest snapshot without the records
// that cause the panic (blame.go). If no such record is found, only the proxies whose configuration cannot be planned
// lose their streams.

// ErrUnplannable is the error of Loop.Join and Proxy.Err for a proxy whose configuration cannot be planned. Planning
// panics, and leaving out records does not help. Loop.Join also returns it without a search for such records, if a join
// has caused a search less than 10 s before.
var ErrUnplannable = errors.New("the view of this proxy cannot be planned; the server's log says why")

// guarded runs f. A panic in f is counted and logged, and returned as the error.
func (l *Loop) guarded(f func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = l.cfg.Crashes.Caught(crash.Plan, fault)
		}
	}()
	f()
	return nil
}

// safely runs f, which may change the planner. After a panic in f the planner is replaced.
func (l *Loop) safely(f func()) {
	if l.guarded(f) != nil {
		l.restore()
	}
}

// accept returns a change without the excluded versions of records. Once an excluded record has another version, the
// exclusion ends and that version is planned.
func (l *Loop) accept(c mirror.Change) mirror.Change {
	if l.newest == nil || !l.excludes {
		return c
	}
	before := len(l.excluded)
	edits := slices.DeleteFunc(slices.Clone(c.Edits), func(e mirror.Edit) bool {
		b, is := l.excluded[e.Key()]
		if !is {
			return false
		}
		if hashOf(e.New) == b.bad {
			return true
		}
		delete(l.excluded, e.Key())
		return false
	})
	if len(l.excluded) != before {
		l.publishExcluded()
	}
	accepted := with(l.newest, c.New.Revision(), edits)
	accepted.Committed = c.Committed
	return accepted
}

// hashOf returns the hash of a record, or zero for nil.
func hashOf(r model.Record) model.Hash {
	if r == nil {
		return model.Hash{}
	}
	return r.Meta().Hash
}

// exclude leaves records out of the newest snapshot and of later snapshots. It logs the exclusions, and publishes them
// as problems.
func (l *Loop) exclude(found []blame) {
	if len(found) == 0 {
		return
	}
	l.excludes = true // from now on the loop makes the snapshots that it plans
	for _, b := range found {
		l.excluded[b.key] = b
		l.log.Error("a record is set aside: the plan panics with this version of it", obs.KeyObject, b.key.String(),
			obs.KeyVersion, b.bad.String(), obs.KeyProblem, b.problem().Message)
	}
	l.newest = without(l.newest, found)
	l.publishExcluded()
}

// problem returns the problem to report for an excluded record.
func (b blame) problem() Problem {
	message := "the plan panics with this version, so the version is set aside until the object changes; "
	switch {
	case b.bad == model.Hash{}:
		message = "the plan panics without the object, so its deletion is set aside; the last version stays in effect"
	case b.stands == nil:
		message += "no earlier version can be planned"
	default:
		if p, is := b.stands.(*model.Policy); is && p.Spec.GetClosed() {
			message += "the workloads that it selects are closed"
		} else {
			message += "the last good version stays in effect"
		}
	}
	return Problem{Key: b.key, Code: problem.Internal, Severity: problem.Error, Message: message}
}

// publishExcluded updates the result of SetAside and its metric.
func (l *Loop) publishExcluded() {
	all := make([]Problem, 0, len(l.excluded))
	for _, b := range l.excluded {
		all = append(all, b.problem())
	}
	slices.SortFunc(all, func(a, b Problem) int { return a.Key.Compare(b.Key) })
	l.setAside.Store(&all)
	obs.SetAside.Set(float64(len(all)))
}

// excludedProblems returns the published problems of excluded records.
func (l *Loop) excludedProblems() []Problem {
	if all := l.setAside.Load(); all != nil {
		return *all
	}
	return nil
}

// SetAside returns a problem for each record whose newest version or deletion is not planned, because planning panics
// with it. The list is sorted by key, may be nil, and must not be changed. SetAside never blocks, and is safe for
// concurrent use.
func (l *Loop) SetAside() []Problem { return l.excludedProblems() }

// Newest returns the newest snapshot that is planned or waits to be planned, or nil before the first snapshot. The
// snapshot is resolved (push/resolve). It lacks the versions of records that SetAside reports, the versions for which
// this process has no memory, and delayed edits of hosts with very many endpoints. Newest never blocks, and is safe for
// concurrent use.
func (l *Loop) Newest() *mirror.Snapshot { return l.latest.Load() }

// restore replaces the planner after a panic, and plans all joined proxies again.
func (l *Loop) restore() {
	if l.newest == nil {
		return
	}
	old := l.planner
	if old != nil {
		_ = l.guarded(old.Drop) // it may panic again, but it is not used any more
	}
	for {
		p, failed := l.replacement(old)
		if p != nil && len(failed) == 0 || l.giveUp(failed) {
			l.planner = p
			break
		}
	}
	now := time.Now()
	of, edits := l.spans[Slow].Join(l.spans[Fast]), append(l.pending.Take(), l.endpointEdits.Take()...)
	l.spans, l.inProgress, l.left = [2]model.Span{}, nil, nil // the newest snapshot is planned
	l.config.started(now)
	l.endpoints.started(now)
	l.good = l.newest
	l.latest.Store(l.newest)
	l.restartJoins()
	if l.planner == nil {
		return // planning fails even without proxies, so no proxy is served
	}
	l.updateGauges()
	l.authorise(now)
	var moved []Moved
	for h := range l.proxies {
		moved = append(moved, Moved{h, Slow})
	}
	l.publishing(Slow, of, edits, moved)
	l.notify(moved)
	l.planned(Slow, l.planner.Revision(), now, len(edits), len(moved))
}

// giveUp searches for records that make the planning of the failed proxies panic. If it finds such records for a proxy,
// it excludes them and returns false. If it finds no records for any proxy, it ends the streams of all failed proxies
// and returns true. A nil list means that the snapshot itself cannot be read.
func (l *Loop) giveUp(failed []*Handle) bool {
	if failed == nil {
		failed = []*Handle{{}}
	}
	lost := failed[:0:0]
	for _, h := range failed {
		found := l.culprits(*h.Node)
		if l.exclude(found); len(found) > 0 {
			return false
		}
		lost = append(lost, h)
	}
	for _, h := range lost {
		if p := l.proxies[h]; p != nil {
			p.fault.Store(true)
			l.log.Error("the view of a proxy cannot be planned, and no record is to blame: its stream ends",
				obs.KeyNode, h.Node.ID, obs.KeyPeer, h.Node.Peer)
		}
	}
	return true
}

// culprits searches the edits since the last good plan for records to blame. If the snapshot of that plan cannot be
// planned any more, culprits searches all records.
func (l *Loop) culprits(n view.Node) []blame {
	s := bisection{l.cfg.Pool, l.cfg.Cluster, l.fault}
	good := l.good
	if good == nil || s.fails(n, good) {
		good = mirror.Empty()
	}
	found, all := s.culprits(n, good, l.newest)
	if !all {
		return nil // leaving out the found records does not help
	}
	return found
}

// replacement returns a planner at the newest snapshot with the joined proxies. failed lists the proxies that it cannot
// plan. Both results are nil if the planner itself cannot be created.
func (l *Loop) replacement(old *Planner) (p *Planner, failed []*Handle) {
	if l.guarded(func() {
		p = New(Settings{Pool: l.cfg.Pool, Snapshot: l.newest, Cluster: l.cfg.Cluster, fault: l.fault})
	}) != nil {
		return nil, nil
	}
	if old != nil {
		p.plans = old.plans + 1
	}
	handles := slices.SortedFunc(maps.Keys(l.proxies), func(a, b *Handle) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	for _, h := range handles {
		if l.proxies[h].fault.Load() {
			continue
		}
		if l.guarded(func() { p.rejoin(h) }) != nil {
			failed = append(failed, h)
		}
	}
	if old != nil {
		_ = l.guarded(func() { p.inherit(old) }) // if this panics, rights are queried and keys are opened again
	}
	return p, failed
}

// rejoin adds a proxy that had joined another planner, with its subscriptions to Secrets.
func (p *Planner) rejoin(h *Handle) {
	p.join(h)
	names := slices.Sorted(slices.Values(h.secrets.All()))
	h.secrets = secret.Names{}
	p.SubscribeSecrets(h, names, nil)
}

// join completes a join whose layers are planned. The parameter made is false if planning the layers has panicked. If
// the view cannot be planned, join searches for a record to blame, at most once in searchEvery. It excludes such a
// record, and the proxy joins again. If that fails or no record is found, join refuses only this proxy, with
// ErrUnplannable.
func (l *Loop) join(e *joinRequest, made bool) (h *Handle, err error) {
	if made && l.guarded(func() { h = e.join.End() }) == nil {
		return h, nil
	}
	e.join.Drop()
	n := e.node
	if now := time.Now(); now.Sub(l.searched) >= searchEvery {
		l.searched = now
		found := l.culprits(n)
		if l.exclude(found); len(found) > 0 {
			l.restore()
			if l.planner != nil && l.guarded(func() { h = l.planner.Join(n) }) == nil {
				return h, nil
			}
		}
	}
	return nil, ErrUnplannable
}
