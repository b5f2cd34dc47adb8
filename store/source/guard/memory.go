package guard

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// Memory is which objects vanished within sumFor, by kind and cluster, and how many there were before: losses are added up by it. The guards
// of a process's sources share one, and so does who compares what is stored (store/ingest): a process that leads next is given what the one
// before remembered (Sums, Recall), or what was lost before it led would count for nothing. Safe for concurrent use; the zero Memory is ready.
type Memory struct {
	mu       sync.Mutex               // a leaf
	vanished map[object.ID][]vanished // by KindOf, oldest first; at most one for each second
}

// vanished is one look in which objects of a kind vanished.
type vanished struct {
	at     time.Time
	before int // objects of the kind that there were, less those whose end was explained since
}

// Sum is one look in which objects of a kind vanished, as it is stored.
type Sum struct {
	Cluster string    `json:"cluster,omitempty"` // of the origin, see origin.Origin
	Source  string    `json:"source,omitempty"`
	Kind    string    `json:"kind"`
	At      time.Time `json:"at"`
	Before  int       `json:"before"` // objects of the kind that there were
}

// The bounds of what is stored.
const (
	sumEach  = 30 * time.Second // of each kind one look in so long a time
	mostSums = 1000
	longKind = 256 // bytes of a kind's name
)

// Sums is what somebody who leads next has to know: of each kind that is added up (sumFrom) the first look in each sumEach. Where there are
// very many kinds those count that had most objects.
func (m *Memory) Sums(at time.Time) (all []Sum) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(at)
	for kind, looks := range m.vanished {
		last := time.Time{}
		for _, v := range looks {
			if v.before >= sumFrom && v.at.Sub(last) >= sumEach && len(kind.Kind) <= longKind {
				last = v.at
				all = append(all, Sum{kind.Origin.Cluster(), kind.Origin.Source(), kind.Kind, v.at.UTC().Truncate(time.Millisecond), v.before})
			}
		}
	}
	slices.SortFunc(all, func(a, b Sum) int {
		return cmp.Or(-cmp.Compare(a.Before, b.Before), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Kind, b.Kind), a.At.Compare(b.At))
	})
	return all[:min(len(all), mostSums)]
}

// Recall takes over what another process remembered. What it saw after at, by its clock, it saw at that time.
func (m *Memory) Recall(at time.Time, sums []Sum) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range sums[:min(len(sums), mostSums)] {
		kind := object.ID{Origin: origin.New(s.Cluster, s.Source), Kind: s.Kind}
		seen := vanished{s.At, s.Before}
		if seen.at.After(at) {
			seen.at = at
		}
		if seen.before > 0 && !slices.Contains(m.vanished[kind], seen) {
			m.all()[kind] = append(m.vanished[kind], seen)
		}
	}
	for _, looks := range m.vanished {
		slices.SortStableFunc(looks, func(a, b vanished) int { return a.at.Compare(b.at) })
	}
	m.forget(at)
}

// Before is how many objects of a kind there were before the first of them vanished, where there are so many now.
func (m *Memory) Before(at time.Time, kind object.ID, now int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(at)
	if all := m.vanished[kind]; len(all) > 0 && all[0].before >= sumFrom {
		return max(all[0].before, now)
	}
	return now
}

// Note remembers that objects of a kind vanished and were let go, of so many.
func (m *Memory) Note(at time.Time, kind object.ID, before int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(at)
	all := m.vanished[kind]
	if n := len(all); n == 0 || at.Sub(all[n-1].at) >= time.Second {
		m.all()[kind] = append(all, vanished{at, before})
	}
}

// explained takes objects out of what counts: nobody misses them.
func (m *Memory) explained(kind object.ID, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.vanished[kind] {
		m.vanished[kind][i].before -= n
	}
}

// drop forgets a kind.
func (m *Memory) drop(kind object.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.vanished, kind)
}

// What follows is called with the lock held.

func (m *Memory) all() map[object.ID][]vanished {
	if m.vanished == nil {
		m.vanished = map[object.ID][]vanished{}
	}
	return m.vanished
}

// forget drops what is too long ago to count.
func (m *Memory) forget(at time.Time) {
	maps.DeleteFunc(m.vanished, func(kind object.ID, all []vanished) bool {
		for len(all) > 0 && at.Sub(all[0].at) >= sumFor {
			all = all[1:]
		}
		if len(all) > 0 {
			m.vanished[kind] = all
		}
		return len(all) == 0
	})
}
