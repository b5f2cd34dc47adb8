// Package loop holds what every loop needs: a box that merges what its reader has not fetched yet, a group that runs loops together, and
// a Yielder, with which a loop that computes for long lets others go first.
//
// Owns: nothing.  Reads: nothing of ours.  Never: drops what was put; grows with what was put.
package loop

import (
	"context"
	"sync"
)

// Box hands values from any number of writers to one reader. It holds at most one value: what is put while another waits
// is merged with it, so a writer never blocks and memory does not grow with the reader's delay.
type Box[T any] struct {
	mu    sync.Mutex // merge is called under it and must not touch the box
	merge func(waiting, next T) T
	value T
	full  bool
	ready chan struct{}
}

// NewBox makes an empty box. merge joins what is waiting with what was put after it; its result must say all that both say.
func NewBox[T any](merge func(waiting, next T) T) *Box[T] {
	return &Box[T]{merge: merge, ready: make(chan struct{}, 1)}
}

// Put adds a value, joining it with what is waiting. It does not block.
func (b *Box[T]) Put(value T) {
	b.mu.Lock()
	if b.full {
		value = b.merge(b.value, value)
	}
	b.value, b.full = value, true
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// Ready receives once after the box became full; then Take. It may also receive when the box is empty again.
func (b *Box[T]) Ready() <-chan struct{} { return b.ready }

// Take empties the box; false where it was empty.
func (b *Box[T]) Take() (T, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	value, full := b.value, b.full
	var zero T
	b.value, b.full = zero, false
	return value, full
}

// Get waits for a value and takes it; the error is the context's.
func (b *Box[T]) Get(ctx context.Context) (T, error) {
	for {
		if value, ok := b.Take(); ok {
			return value, nil
		}
		select {
		case <-b.ready:
		case <-ctx.Done():
			var zero T
			return zero, ctx.Err()
		}
	}
}
