package serve

import (
	"sync"

	"navarch.io/navarch/push/manifest"
)

// differ remembers the last differences for a moment: streams of one scope move from the same stack to the same stack.
type differ struct {
	mu   sync.Mutex // a leaf
	ring [16]struct {
		old, new manifest.Stack
		diff     []manifest.Delta
		idle     bool // not asked for since the last tick
	}
	next int
}

func (d *differ) between(old, new manifest.Stack) []manifest.Delta {
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

// tick forgets what nobody asked for since the last one: it keeps old resources alive.
func (d *differ) tick() {
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
