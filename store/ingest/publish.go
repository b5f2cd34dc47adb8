package ingest

import (
	"slices"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// publish makes problems and counters readable.
func (l *Loop) publish() {
	l.name()
	all := l.state.listed(l.between)
	changed := !slices.Equal(all, l.Problems())
	if changed {
		l.problems.Store(&all)
	}
	if v := l.state.faultsVersion(); changed || v != l.counted {
		l.counted = v
		l.version.Add(1)
		more := append(l.state.more(), l.between...)
		count := l.state.faults.count
		for _, p := range more {
			count.Add(p.Severity, 1)
		}
		l.count.Store(&count)
		countRejected(l.state.faults.rejected, more, l.state.rejects)
	}
	l.publishRemovals()
	l.state.showTenants()
	l.tenants.publish(l.state)
	l.stored.Store(l.state.storedLevel())
	l.settled.Store(l.state.leading && l.state.phase == ready && l.state.queue.waits == 0)
	obs.Waiting.Set(float64(l.state.queue.waits))
	stats := l.state.Stats()
	if before := l.Stats(); stats != before {
		obs.Writes.WithLabelValues("put").Add(float64(stats.Puts - before.Puts))
		obs.Writes.WithLabelValues("delete").Add(float64(stats.Deletes - before.Deletes))
		l.stats.Store(&stats)
	}
	for _, answer := range l.ask {
		answer()
	}
	l.ask = nil
}

// countRejected shows how many objects of each kind do not apply: those that have problems of their own, and others.
func countRejected(own map[string]int, others []object.Problem, counted func(object.ID) bool) {
	obs.RejectedConfigs.Reset()
	for kind, n := range own {
		obs.RejectedConfigs.WithLabelValues(kind).Set(float64(n))
	}
	seen := map[object.ID]bool{}
	for _, p := range others {
		if p.Severity == problem.Error && !seen[p.ID] && !counted(p.ID) {
			seen[p.ID] = true
			obs.RejectedConfigs.WithLabelValues(p.ID.Kind).Inc()
		}
	}
}

// rejects says whether an object has problems of its own for which it does not apply.
func (s *State) rejects(id object.ID) bool {
	e := s.objects[id]
	return e != nil && rejects(e.problems)
}
