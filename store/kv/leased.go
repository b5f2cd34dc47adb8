package kv

import (
	"context"
	"time"
)

// Leased writes blobs under one lease, which it acquires with the first write. The blobs stay while this process lives,
// and for the lease's length afterwards. One goroutine uses it.
type Leased struct {
	store  *Store
	length time.Duration
	lease  *Lease // nil: not acquired, or dropped
}

// Leased returns a Leased without a lease. Its lease will have length, in whole seconds.
func (s *Store) Leased(length time.Duration) *Leased { return &Leased{store: s, length: length} }

// Lost returns a channel that is closed when the lease and all its blobs have ended, or nil without a lease. Then call
// Drop and write again.
func (l *Leased) Lost() <-chan struct{} {
	if l.lease == nil {
		return nil
	}
	return l.lease.Lost()
}

// Drop forgets a lost lease. It panics if the lease still lives: its blobs would stay as long as this process.
func (l *Leased) Drop() {
	if l.lease != nil {
		select {
		case <-l.lease.Lost():
		default:
			panic("kv: Leased.Drop of a lease that was not lost")
		}
	}
	l.lease = nil
}

// Put writes a blob over any existing value. Errors are those of Store.Lease and Lease.Put.
func (l *Leased) Put(ctx context.Context, path string, raw []byte) (err error) {
	if l.lease == nil {
		if l.lease, err = l.store.Lease(ctx, l.length); err != nil {
			return err
		}
	}
	_, err = l.lease.Put(ctx, path, raw)
	return err
}

// Delete deletes a blob that Put has written. Errors are those of Lease.Delete.
func (l *Leased) Delete(ctx context.Context, path string) error {
	if l.lease == nil {
		return nil
	}
	return l.lease.Delete(ctx, path)
}

// Release deletes all blobs. After an error, that of Lease.Release, they expire with the lease. A later Put acquires
// another lease.
func (l *Leased) Release(ctx context.Context) error {
	lease := l.lease
	if l.lease = nil; lease == nil {
		return nil
	}
	return lease.Release(ctx)
}

// End is Release for a process that is about to end. It waits one second at most.
func (l *Leased) End() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Release(ctx) // otherwise the blobs expire by themselves
}
