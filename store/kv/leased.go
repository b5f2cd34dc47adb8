package kv

import (
	"context"
	"time"
)

// Leased writes blobs under a lease that is taken with the first of them. They stay for as long as this process lives, and the lease's length
// beyond. It is used by one goroutine.
type Leased struct {
	store  *Store
	length time.Duration
	lease  *Lease // nil: there is none
}

// Leased takes no lease yet. Its length is whole seconds.
func (s *Store) Leased(length time.Duration) *Leased { return &Leased{store: s, length: length} }

// Lost is closed when the lease has ended, and with it all that was written; nil: there is none. Then Drop it, and write again.
func (l *Leased) Lost() <-chan struct{} {
	if l.lease == nil {
		return nil
	}
	return l.lease.Lost()
}

// Drop forgets a lease that was lost. It panics where there is one that was not: what was written under it would stay for as long as this process lives.
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

// Put writes a blob, whatever was there before. The errors are those of Store.Lease and Lease.Put.
func (l *Leased) Put(ctx context.Context, path string, raw []byte) (err error) {
	if l.lease == nil {
		if l.lease, err = l.store.Lease(ctx, l.length); err != nil {
			return err
		}
	}
	_, err = l.lease.Put(ctx, path, raw)
	return err
}

// Delete takes a blob away that Put has written. The errors are those of Lease.Delete.
func (l *Leased) Delete(ctx context.Context, path string) error {
	if l.lease == nil {
		return nil
	}
	return l.lease.Delete(ctx, path)
}

// Release takes all blobs away. After an error, that of Lease.Release, they end with the lease; Put takes another one.
func (l *Leased) Release(ctx context.Context) error {
	lease := l.lease
	if l.lease = nil; lease == nil {
		return nil
	}
	return lease.Release(ctx)
}

// End is Release for who is about to end, and waits no longer than a second for it.
func (l *Leased) End() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Release(ctx) // else they end by themselves
}
