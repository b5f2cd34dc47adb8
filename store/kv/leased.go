package kv

import (
	"context"
	"time"
)

// Leased writes blobs (stored values) under one lease. The first Put acquires the lease. The blobs stay while this
// process lives, and for the lease's length afterwards. Only one goroutine may use a Leased.
type Leased struct {
	store  *Store
	length time.Duration
	lease  *Lease // nil: not acquired, or dropped
}

// Leased returns a Leased without a lease. The argument length is the length of its leases, in whole seconds. Put
// reports an invalid length.
func (s *Store) Leased(length time.Duration) *Leased { return &Leased{store: s, length: length} }

// Lost returns the channel of Lease.Lost, or nil without a lease. Once the channel is closed, the owner must call Drop
// and write the blobs again.
func (l *Leased) Lost() <-chan struct{} {
	if l.lease == nil {
		return nil
	}
	return l.lease.Lost()
}

// Drop forgets a lost lease, so that the next Put acquires another. It panics if Lost is not closed, because the
// forgotten lease would be renewed as long as this process runs. Without a lease it has no effect.
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

// Put writes a blob over any existing value. Errors are those of Store.Lease and Lease.Put. After ErrLeaseLost, Put
// fails until Drop.
func (l *Leased) Put(ctx context.Context, path string, raw []byte) (err error) {
	if l.lease == nil {
		if l.lease, err = l.store.Lease(ctx, l.length); err != nil {
			return err
		}
	}
	_, err = l.lease.Put(ctx, path, raw)
	return err
}

// Delete deletes a blob that Put has written. Without a lease it does nothing. Errors are those of Lease.Delete.
func (l *Leased) Delete(ctx context.Context, path string) error {
	if l.lease == nil {
		return nil
	}
	return l.lease.Delete(ctx, path)
}

// Release revokes the lease, and thereby deletes all blobs. A later Put acquires another lease. Errors are those of
// Lease.Release. After an error the blobs expire with the lease. Without a lease it returns nil.
func (l *Leased) Release(ctx context.Context) error {
	lease := l.lease
	if l.lease = nil; lease == nil {
		return nil
	}
	return lease.Release(ctx)
}

// End does the same as Release when the process ends. It waits one second at most, and ignores errors.
func (l *Leased) End() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Release(ctx) // if this fails, the blobs expire by themselves
}
