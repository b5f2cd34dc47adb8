// Package loop contains helpers for long-running goroutines. Box merges values for a slow reader, Run runs several
// tasks together, Each uses all cores, Pause waits, and Yielder lets other goroutines run during a long computation.
//
// Owns: nothing. Reads: nothing. Never: drops a value in a Box; lets a Box grow with the number of values.
package loop

import (
	"context"
	"sync"
)

// Box passes values from any number of writers to one reader. It contains one value at most, and merges later values
// into the waiting value. So writers never wait for the reader, and the box does not grow with the reader's delay. A
// Box is safe for concurrent use.
type Box[T any] struct {
	mu    sync.Mutex // merge is called under it and must not use the box
	merge func(waiting, next T) T
	value T
	full  bool
	ready chan struct{}
}

// NewBox returns an empty box. The function merge joins the waiting value with the next one. Its result must contain
// the information of both. It runs under the box's lock and must not use the box.
func NewBox[T any](merge func(waiting, next T) T) *Box[T] {
	return &Box[T]{merge: merge, ready: make(chan struct{}, 1)}
}

// Put adds a value, merged with a waiting one. It does not block.
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

// Ready returns a channel from which the reader receives a signal after Put. Several Puts may cause only one signal.
// The reader then calls Take. The box may be empty by then. The channel is never closed.
func (b *Box[T]) Ready() <-chan struct{} { return b.ready }

// Take removes the value and returns it, without blocking. False and the zero T mean that the box was empty.
func (b *Box[T]) Take() (T, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	value, full := b.value, b.full
	var zero T
	b.value, b.full = zero, false
	return value, full
}

// Get waits for a value and removes it from the box. If ctx ends before a value comes, the error is the context's.
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
