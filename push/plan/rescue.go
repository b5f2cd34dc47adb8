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

// A panic while configuration is planned leaves the planner half-changed, and nothing else: what proxies have is immutable. So
// another planner is made from scratch, for the same proxies, at the newest snapshot without the records that are to blame
// (blame.go). Where it is no record, the proxy whose view cannot be planned loses its stream, and no other does.

// ErrUnplannable is why a proxy is not served: its view cannot be planned, and no record is to blame.
var ErrUnplannable = errors.New("the view of this proxy cannot be planned; the server's log says why")

// guarded runs f; a panic in it is counted and logged, and is the error.
func (l *Loop) guarded(f func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = l.cfg.Crashes.Caught(crash.Plan, fault)
		}
	}()
	f()
	return nil
}

// safely runs f, which may change the planner; where it panics, the planner is made again.
func (l *Loop) safely(f func()) {
	if l.guarded(f) != nil {
		l.restore()
	}
}

// accept leaves out of a change what is set aside. A record of which another version comes is tried again.
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

// hashOf is zero for no record.
func hashOf(r model.Record) model.Hash {
	if r == nil {
		return model.Hash{}
	}
	return r.Meta().Hash
}

// exclude leaves records out of the newest snapshot from now on, and says so.
func (l *Loop) exclude(found []blame) {
	if len(found) == 0 {
		return
	}
	l.excludes = true // from now on the snapshots are this loop's own
	for _, b := range found {
		l.excluded[b.key] = b
		l.log.Error("a record is set aside: the plan panics with this version of it", obs.KeyObject, b.key.String(), obs.KeyVersion, b.bad.String(),
			obs.KeyProblem, b.problem().Message)
	}
	l.newest = without(l.newest, found)
	l.publishExcluded()
}

// problem is what is shown of it.
func (b blame) problem() Problem {
	message := "the plan panics with this version, so it is set aside until it changes; "
	switch {
	case b.bad == model.Hash{}:
		message = "the plan panics without it, so its deletion is set aside; the last version stands"
	case b.stands == nil:
		message += "there is no version that could be planned"
	default:
		if p, is := b.stands.(*model.Policy); is && p.Spec.GetClosed() {
			message += "what it selects is closed"
		} else {
			message += "the last good version stands"
		}
	}
	return Problem{Key: b.key, Code: problem.Internal, Severity: problem.Error, Message: message}
}

func (l *Loop) publishExcluded() {
	all := make([]Problem, 0, len(l.excluded))
	for _, b := range l.excluded {
		all = append(all, b.problem())
	}
	slices.SortFunc(all, func(a, b Problem) int { return a.Key.Compare(b.Key) })
	l.said.Store(&all)
	obs.SetAside.Set(float64(len(all)))
}

func (l *Loop) excludedProblems() []Problem {
	if all := l.said.Load(); all != nil {
		return *all
	}
	return nil
}

// SetAside lists the records whose newest version is not planned because the plan panics with it. Safe for any goroutine.
func (l *Loop) SetAside() []Problem { return l.excludedProblems() }

// Newest is the newest snapshot that is planned from, or will be: the source's, without what is set aside; nil: there is none yet.
// Safe for any goroutine.
func (l *Loop) Newest() *mirror.Snapshot { return l.latest.Load() }

// restore makes another planner after a panic, which serves the proxies that joined.
func (l *Loop) restore() {
	if l.newest == nil {
		return
	}
	old := l.planner
	if old != nil {
		_ = l.guarded(old.Drop) // it may panic again; nobody uses it any more
	}
	for {
		p, failed := l.replacement(old)
		if p != nil && len(failed) == 0 || l.giveUp(failed) {
			l.planner = p
			break
		}
	}
	now := time.Now()
	l.pending, l.endpointEdits, l.going, l.left = Pending{}, Pending{}, nil, nil // all of the newest is planned
	l.config.took(now)
	l.endpoints.took(now)
	l.good = l.newest
	l.latest.Store(l.newest)
	l.beginAgain()
	if l.planner == nil {
		return // not even without a proxy: nobody is served
	}
	l.show()
	l.authorise(now)
	var moved []Moved
	for h := range l.proxies {
		moved = append(moved, Moved{h, Slow})
	}
	l.notify(moved)
	l.notified.Store(l.planner.Revision())
}

// giveUp sets aside what is to blame for the first proxy that failed, and says whether nothing more can be done: no record is, and the
// proxies that failed have lost their streams. Of no proxy: the snapshot itself cannot be read.
func (l *Loop) giveUp(failed []*Handle) bool {
	if failed == nil {
		failed = []*Handle{{}}
	}
	lost := failed[:0:0]
	for _, h := range failed {
		found := l.culprits(h.Node)
		if l.exclude(found); len(found) > 0 {
			return false
		}
		lost = append(lost, h)
	}
	for _, h := range lost {
		if p := l.proxies[h]; p != nil {
			p.fault.Store(true)
			l.log.Error("the view of a proxy cannot be planned, and no record is to blame: its stream ends", obs.KeyNode, h.Node.ID, obs.KeyPeer, h.Node.Peer)
		}
	}
	return true
}

// culprits searches among what came since the last plan; where that was as bad, among all records.
func (l *Loop) culprits(n view.Node) []blame {
	s := bisection{l.cfg.Pool, l.cfg.Cluster, l.fault}
	good := l.good
	if good == nil || s.fails(n, good) {
		good = mirror.Empty()
	}
	found, all := s.culprits(n, good, l.newest)
	if !all {
		return nil // what was found does not help
	}
	return found
}

// replacement is a planner at the newest snapshot for the proxies that joined, and those of them that it cannot plan for. nil: not for
// anybody.
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
		_ = l.guarded(func() { p.inherit(old) }) // where it panics, the rights are asked for again, and the keys opened
	}
	return p, failed
}

// rejoin is Join for a proxy that another planner has planned for, with the Secrets that it asks for.
func (p *Planner) rejoin(h *Handle) {
	p.join(h)
	names := slices.Sorted(slices.Values(h.secrets.All()))
	h.secrets = secret.Names{}
	p.SubscribeSecrets(h, names, nil)
}

// join has a proxy join for which all is made; false: that has panicked. A view that cannot be planned leaves the planner as it
// was, so that this proxy alone is refused; where a record is to blame, it is set aside.
func (l *Loop) join(e *entering, made bool) (h *Handle, err error) {
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
