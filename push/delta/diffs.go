package delta

import (
	"sync"

	"navarch.io/navarch/push/manifest"
)

// Diffs remembers the last differences for a moment, so that streams share the work: those of one scope move from the same stack to the
// same stack. Safe for concurrent use; the zero Diffs is ready, and the nil one
// remembers nothing.
type Diffs struct {
	mu   sync.Mutex // a leaf
	ring [16]struct {
		old, new manifest.Stack
		diff     []manifest.Delta
		idle     bool // not asked for since the last tick
	}
	next int
}

// between is manifest.Diff; the result is shared, and not to be changed.
func (d *Diffs) between(old, new manifest.Stack) []manifest.Delta {
	if d == nil {
		return manifest.Diff(old, new)
	}
	d.mu.Lock()
	for i := range d.ring {
		if e := &d.ring[i]; e.old == old && e.new == new {
			found := e.diff
			e.idle = false
			d.mu.Unlock()
			return found
		}
	}
	d.mu.Unlock()
	made := manifest.Diff(old, new)
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &d.ring[d.next]
	d.next = (d.next + 1) % len(d.ring)
	e.old, e.new, e.diff, e.idle = old, new, made, false
	return made
}

// Tick forgets what nobody asked for since the last Tick: it keeps old resources alive. Call it every second or so.
func (d *Diffs) Tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.ring {
		e := &d.ring[i]
		if e.idle {
			e.old, e.new, e.diff = manifest.Stack{}, manifest.Stack{}, nil
		}
		e.idle = true
	}
}
