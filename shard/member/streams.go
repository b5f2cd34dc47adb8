package member

import (
	"cmp"
	"slices"
	"sync"

	"navarch.io/navarch/shard/ring"
)

// Streams counts this replica's served and waiting streams by namespace and workload. The zero value is ready for use.
// Any goroutine may call its methods.
type Streams struct {
	mu      sync.Mutex // a leaf lock
	counts  map[proxyKind]int
	waiting map[proxyKind]int
	total   int // sum of counts
}

// proxyKind has the two properties of a proxy that determine its owner in the ring.
type proxyKind struct{ namespace, workload string }

// Join counts a served stream until leave is called. Repeated calls of leave have no effect.
func (s *Streams) Join(namespace, workload string) (leave func()) {
	kind := proxyKind{namespace, workload}
	s.add(kind, 1)
	return sync.OnceFunc(func() { s.add(kind, -1) })
}

func (s *Streams) add(kind proxyKind, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += by
	count(&s.counts, kind, by)
}

// Wait counts a stream as waiting for admission until leave is called. leave must be called exactly once. Load includes
// waiting streams; Total and Misplaced do not.
func (s *Streams) Wait(namespace, workload string) (leave func()) {
	kind := proxyKind{namespace, workload}
	s.wait(kind, 1)
	return func() { s.wait(kind, -1) }
}

func (s *Streams) wait(kind proxyKind, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count(&s.waiting, kind, by)
}

func count(counts *map[proxyKind]int, kind proxyKind, by int) {
	if *counts == nil {
		*counts = map[proxyKind]int{}
	}
	if (*counts)[kind] += by; (*counts)[kind] == 0 {
		delete(*counts, kind)
	}
}

// Total returns the number of served streams.
func (s *Streams) Total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Misplaced returns the number of served streams that a ring assigns to a replica other than self. Streams whose shard
// has no owner do not count. For a nil ring the result is 0.
func (s *Streams) Misplaced(r *ring.Ring, self string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for kind, count := range s.counts {
		if owner, ok := ring.Owner(r, kind.namespace, kind.workload); ok && owner.Name != self {
			n += count
		}
	}
	return n
}

// Bounds of a record's load, which keep the record below 64 KiB. The load names the largest namespaces. It names
// workloads only of namespaces that are split (assigned to shards by workload) or may become split. Rest counts the
// streams of all other namespaces.
const (
	maxNamespaces = 512
	maxWorkloads  = 1024
	maxNames      = 40 << 10 // bytes of names
	// The leader may split a namespace that has more than an eighth of a replica's fair share (ring.Assign). Load names
	// the workloads of a namespace from half of that limit on. So the leader knows the workloads before it splits the
	// namespace.
	splitPart = 16
)

// Load returns the served and waiting streams within the bounds of a record. Rest counts the streams of namespaces
// beyond the bounds, and of namespaces whose names have more than ring.MaxName bytes. r is the present ring, with the
// split namespaces and the number of replicas. It is nil if there is no ring. The caller owns the result.
func (s *Streams) Load(r *ring.Ring) ring.Load {
	type entry struct {
		name      string
		streams   int
		workloads map[string]int
	}
	total, byName := 0, map[string]*entry{}
	s.mu.Lock()
	for _, counts := range []map[proxyKind]int{s.counts, s.waiting} {
		for kind, count := range counts {
			e := byName[kind.namespace]
			if e == nil {
				e = &entry{name: kind.namespace, workloads: map[string]int{}}
				byName[kind.namespace] = e
			}
			total += count
			e.streams += count
			e.workloads[kind.workload] += count
		}
	}
	s.mu.Unlock()
	entries := make([]*entry, 0, len(byName))
	for _, e := range byName {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Or(b.streams-a.streams, cmp.Compare(a.name, b.name)) })
	load := ring.Load{Namespaces: map[string]ring.NamespaceLoad{}}
	limit := total / (splitPart * max(len(r.Members()), 1))
	bytes, workloads := 0, 0
	for _, e := range entries {
		if len(load.Namespaces) == maxNamespaces || bytes+len(e.name) > maxNames || len(e.name) > ring.MaxName {
			load.Rest += e.streams
			continue
		}
		bytes += len(e.name)
		n := ring.NamespaceLoad{Streams: e.streams}
		if r.Split(e.name) || e.streams > limit {
			n.Workloads = largest(e.workloads, maxWorkloads-workloads, maxNames-bytes)
			workloads += len(n.Workloads)
			for name := range n.Workloads {
				bytes += len(name)
			}
		}
		load.Namespaces[e.name] = n
	}
	return load
}

// largest returns the workloads with the most streams. The result has at most number workloads, and their names have at
// most the given number of bytes in total.
func largest(all map[string]int, number, bytes int) map[string]int {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(all[b]-all[a], cmp.Compare(a, b)) })
	kept := map[string]int{}
	for _, name := range names {
		if len(kept) >= number || len(name) > ring.MaxName || len(name) > bytes {
			continue
		}
		bytes -= len(name)
		kept[name] = all[name]
	}
	return kept
}
