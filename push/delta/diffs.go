package delta

import (
	"sync"

	"navarch.io/navarch/push/manifest"
)

// Diffs remembers differences for a moment, so that streams share the work: those of one variant move from the same stack to the same
// stack, and the stacks of all variants of a scope have its layer in common. Safe for concurrent use; the zero Diffs is ready, and the nil
// one remembers nothing.
type Diffs struct {
	mu     sync.Mutex // a leaf
	stacks memory[manifest.Stack]
	layers memory[*manifest.Manifest]
}

// between is manifest.Diff; the result is shared, and not to be changed.
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

// recall is what is remembered of a pair, or what diff says of it: that is remembered from then on.
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

// Tick forgets what nobody asked for since the last Tick: it keeps old resources alive. Call it every second or so.
func (d *Diffs) Tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stacks.tick()
	d.layers.tick()
}

// memory is what differs between pairs of stacks, or of manifests.
type memory[T comparable] struct {
	pairs map[pair[T]]*remembered
	size  int // the sum over pairs of remembered.size
}

type pair[T comparable] struct{ old, new T }

type remembered struct {
	diff []manifest.Delta
	idle bool // not asked for since the last tick
}

// maxRemembered is how large a memory is at most, in names that differ, unless one pair alone has more: a few megabytes.
const maxRemembered = 1 << 16

// size counts the names that differ, and the pair itself as eight of them.
func (r *remembered) size() int { return len(r.diff) + 8 }

func (m *memory[T]) put(p pair[T], diff []manifest.Delta) {
	m.forget(p) // another stream may have been as fast
	r := &remembered{diff: diff}
	for other := range m.pairs { // any: the order of a map is random
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

func (m *memory[T]) forget(p pair[T]) {
	if r := m.pairs[p]; r != nil {
		m.size -= r.size()
		delete(m.pairs, p)
	}
}

func (m *memory[T]) tick() {
	for p, r := range m.pairs {
		if r.idle {
			m.forget(p)
		}
		r.idle = true
	}
}
