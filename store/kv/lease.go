package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrLeaseLost: the lease has ended, and what was written under it is gone. Take another one.
var ErrLeaseLost = errors.New("the lease has ended")

// fleetFamilies are the folders that leases, fenced changes and Follow touch.
var fleetFamilies = []string{"acknowledged/", "allocations/", "awaited/", "clocks/", "clusters/", "dns/", "fetched/", "level/",
	"members/", "promoted/", "refusals/", "registrations/", "removals/", "replica-problems/", "ring/", "sources/", "tenants/"}

func (s *Store) fleetKey(path string) (string, error) {
	for _, family := range fleetFamilies {
		if strings.HasPrefix(path, family) {
			return s.key(path), nil
		}
	}
	return "", fmt.Errorf("%q: want a path below one of %v", path, fleetFamilies)
}

// Lease keeps blobs in etcd for as long as this process keeps it alive, and its length beyond. It lives until Release, or
// until the Store is closed.
type Lease struct {
	store  *Store
	id     clientv3.LeaseID
	cancel context.CancelFunc
	lost   chan struct{}
}

// Lease takes a lease of whole seconds and keeps it alive. ctx bounds the request, not the lease.
// Errors: the length has a fraction of a second, or etcd does not answer.
func (s *Store) Lease(ctx context.Context, length time.Duration) (*Lease, error) {
	if length < time.Second || length%time.Second != 0 {
		return nil, fmt.Errorf("lease of %v: want whole seconds", length)
	}
	grant, err := s.client.Grant(ctx, int64(length/time.Second))
	if err != nil {
		return nil, fmt.Errorf("take a lease: %w", err)
	}
	alive, cancel := context.WithCancel(s.client.Ctx())
	l := &Lease{store: s, id: grant.ID, cancel: cancel, lost: make(chan struct{})}
	beats, err := s.client.KeepAlive(alive, grant.ID)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("keep a lease alive: %w", err)
	}
	go func() { // ends with the lease, Release or the Store
		defer close(l.lost)
		for range beats {
		}
	}()
	return l, nil
}

// Lost is closed when the lease has ended: etcd said so, or it did not answer for the lease's length.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Put writes a blob that ends with the lease, whatever was there before; it returns the revision. ErrLeaseLost: nothing
// was written.
func (l *Lease) Put(ctx context.Context, path string, raw []byte) (int64, error) {
	return l.PutWhile(ctx, path, raw, Bound{})
}

// Delete takes away a blob that was written under a lease before the lease ends. That it is not there is no error.
func (l *Lease) Delete(ctx context.Context, path string) error {
	key, err := l.store.fleetKey(path)
	if err != nil {
		return err
	}
	if _, err := l.store.client.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// Bound is a condition on another blob: it is not there, or its bytes are not above Most in bytewise order. The zero Bound always holds.
type Bound struct {
	Path string
	Most []byte
}

// PutWhile is Put, where a bound holds in the same transaction. ErrConflict: it does not hold, and nothing was written.
func (l *Lease) PutWhile(ctx context.Context, path string, raw []byte, bound Bound) (int64, error) {
	key, err := l.store.fleetKey(path)
	if err != nil {
		return 0, err
	}
	if size := len(key) + len(raw) + opBytes; size > MaxRecordBytes {
		return 0, fmt.Errorf("blob %s: %d bytes, at most %d fit in etcd", path, size, MaxRecordBytes)
	}
	put := clientv3.OpPut(key, string(raw), clientv3.WithLease(l.id))
	txn := l.store.client.Txn(ctx).Then(put)
	if bound.Path != "" {
		at, err := l.store.fleetKey(bound.Path)
		if err != nil {
			return 0, err
		}
		// A comparison of values fails where there is none, so that case is one of its own.
		below := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(at), "<", string(bound.Most)+"\x00")}, []clientv3.Op{put}, nil)
		txn = l.store.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(at), "=", 0)).Then(put).Else(below)
	}
	resp, err := txn.Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return 0, fmt.Errorf("write %s: %w", path, ErrLeaseLost)
	case err != nil:
		return 0, fmt.Errorf("write %s: %w", path, err)
	case !resp.Succeeded && !resp.Responses[0].GetResponseTxn().Succeeded:
		return 0, fmt.Errorf("write %s: %s is above %q: %w", path, bound.Path, bound.Most, ErrConflict)
	}
	return resp.Header.Revision, nil
}

// Release ends the lease, and with it what was written under it. Where etcd does not answer before ctx ends, the lease
// ends by itself. An error is etcd's; a lease that has ended is none.
func (l *Lease) Release(ctx context.Context) error {
	l.cancel()
	if _, err := l.store.client.Revoke(ctx, l.id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("give a lease back: %w", err)
	}
	return nil
}

// ChangeFenced does a change of blobs if an epoch still leads, and returns its revision. ErrDeposed: it does not.
// ErrConflict: a condition does not hold. In both cases nothing was written; after any other error it is unknown.
func (s *Store) ChangeFenced(ctx context.Context, epoch Epoch, c BlobChange) (int64, error) {
	if epoch.Key == "" || epoch.Revision == 0 {
		return 0, errors.New("change blobs without an epoch")
	}
	conditions := []clientv3.Cmp{fence(epoch)}
	for path, revision := range c.If {
		key, err := s.fleetKey(path)
		if err != nil {
			return 0, err
		}
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
	}
	for folder, revision := range c.Unchanged {
		key, err := s.fleetKey(folder)
		if err != nil {
			return 0, err
		}
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key).WithRange(after(key)), "<", revision+1))
	}
	var ops []clientv3.Op
	for _, blob := range c.Put {
		key, err := s.fleetKey(blob.Path)
		if err != nil {
			return 0, err
		}
		ops = append(ops, clientv3.OpPut(key, string(blob.Raw)))
	}
	for _, path := range c.Delete {
		key, err := s.fleetKey(path)
		if err != nil {
			return 0, err
		}
		ops = append(ops, clientv3.OpDelete(key))
	}
	resp, err := s.client.Txn(ctx).If(conditions...).Then(ops...).Else(clientv3.OpGet(epoch.Key)).Commit()
	if err != nil {
		return 0, fmt.Errorf("change %d blobs at epoch %d: %w", len(ops), epoch.Revision, err)
	}
	if resp.Succeeded {
		return resp.Header.Revision, nil
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 && kvs[0].CreateRevision == epoch.Revision {
		return 0, ErrConflict
	}
	return 0, ErrDeposed
}
