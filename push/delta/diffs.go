package delta

import (
	"sync"

	"navarch.io/navarch/push/manifest"
)

// Diffs caches differences between stacks, so that streams share the work. A stack is a set of resources in layers, and
// each layer is a Manifest. Proxies with equal configuration change from the same old stack to the same new stack.
// Proxies with similar configuration share layers, so differences between layers are cached too. A difference is
// dropped when it was not used for one to two intervals of Tick, or when the cache is full. The zero Diffs is ready for
// use. As Config.Diffs, a nil Diffs caches nothing. A Diffs is safe for concurrent use.
type Diffs struct {
	mu     sync.Mutex // no other lock is acquired while it is held
	stacks memory[manifest.Stack]
	layers memory[*manifest.Manifest]
}

// between returns the result of manifest.Diff, from the cache if possible. The result is shared and read-only.
func (d *Diffs) between(old, new manifest.Stack) []manifest.Delta {
	if d == nil {
		return manifest.Diff(old, new)
	}
	return recall(d, &d.stacks, old, new, func(old, new manifest.Stack) []manifest.Delta {
		return manifest.Join(old, new, func(old, new *manifest.Manifest) []manifest.Delta {
			return recall(d, &d.layers, old, new, manifest.DiffLayer)
		})
	})
}

// recall returns the cached difference between old and new, or computes and caches it.
func recall[T comparable](d *Diffs, m *memory[T], old, new T, diff func(old, new T) []manifest.Delta) []manifest.Delta {
	of := pair[T]{old, new}
	d.mu.Lock()
	if known := m.pairs[of]; known != nil {
		known.idle = false
		d.mu.Unlock()
		return known.diff
	}
	d.mu.Unlock()
	made := diff(old, new)
	d.mu.Lock()
	defer d.mu.Unlock()
	m.put(of, made)
	return made
}

// Tick drops the differences that were neither added nor used since the last Tick, because they keep old resources
// alive. Call it about every second. It panics for a nil Diffs.
func (d *Diffs) Tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stacks.tick()
	d.layers.tick()
}

// memory is a cache of differences between pairs of stacks or of manifests.
type memory[T comparable] struct {
	pairs map[pair[T]]*remembered
	size  int // the sum over pairs of remembered.size
}

// pair is the key of a difference.
type pair[T comparable] struct{ old, new T }

// remembered is a cached difference.
type remembered struct {
	diff []manifest.Delta
	idle bool // unused since the last tick
}

// maxRemembered is the maximum size of a memory, in the unit of remembered.size. This size corresponds to a few
// megabytes. A single difference may exceed it.
const maxRemembered = 1 << 16

// size returns the number of names that differ, plus 8 for the pair itself.
func (r *remembered) size() int { return len(r.diff) + 8 }

// put adds a difference. If the memory is full, it removes other pairs.
func (m *memory[T]) put(p pair[T], diff []manifest.Delta) {
	m.forget(p) // another stream may have added the same difference meanwhile
	r := &remembered{diff: diff}
	for other := range m.pairs { // any pair: the order of a map is random
		if m.size+r.size() <= maxRemembered {
			break
		}
		m.forget(other)
	}
	if m.pairs == nil {
		m.pairs = map[pair[T]]*remembered{}
	}
	m.pairs[p] = r
	m.size += r.size()
}

// forget removes a pair.
func (m *memory[T]) forget(p pair[T]) {
	if r := m.pairs[p]; r != nil {
		m.size -= r.size()
		delete(m.pairs, p)
	}
}

// tick removes the pairs that were unused since the last tick.
func (m *memory[T]) tick() {
	for p, r := range m.pairs {
		if r.idle {
			m.forget(p)
		}
		r.idle = true
	}
}
