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

// ErrLeaseLost means that the lease has ended, and that etcd has deleted the blobs (stored values) with this lease. The
// owner must acquire another lease.
var ErrLeaseLost = errors.New("the lease has ended")

// fleetFamilies are the folders whose paths leases, ChangeFenced and Follow accept.
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

// Lease keeps blobs in etcd while this process renews the lease, and for the lease's length after the last renewal.
// Release revokes the lease. Closing the Store ends the renewal. A Lease is safe for concurrent use.
type Lease struct {
	store  *Store
	id     clientv3.LeaseID
	cancel context.CancelFunc
	lost   chan struct{}
}

// Lease acquires a lease and renews it in the background. The context bounds the request, not the lease. Errors: length
// is not a positive whole number of seconds. All other errors are etcd's.
func (s *Store) Lease(ctx context.Context, length time.Duration) (*Lease, error) {
	if length < time.Second || length%time.Second != 0 {
		return nil, fmt.Errorf("lease of %v: want whole seconds", length)
	}
	grant, err := s.client.Grant(ctx, int64(length/time.Second))
	if err != nil {
		return nil, fmt.Errorf("acquire a lease: %w", err)
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

// Lost returns a channel that is closed when the lease has ended, as far as this process knows. The channel is closed
// if etcd reports the end, or does not answer for the lease's length. Before the first renewal, 6 s without an answer
// suffice. Release and Store.Close close the channel too.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Put writes a blob with the lease, over any existing value, and returns the revision of the write. etcd deletes the
// blob when the lease ends. Errors: the path is outside fleetFamilies, the blob exceeds MaxRecordBytes, or
// ErrLeaseLost. In these cases nothing was written. After any other error the outcome is unknown.
func (l *Lease) Put(ctx context.Context, path string, raw []byte) (int64, error) {
	return l.PutWhile(ctx, path, raw, Bound{})
}

// Delete deletes a blob before its lease ends. An absent blob is not an error. A path outside fleetFamilies is an
// error. All other errors are etcd's.
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

// Bound is a condition on the blob at Path, which must be below fleetFamilies. The condition holds if the blob is
// absent, or if its bytes do not sort after the bytes in Most. The zero Bound always holds.
type Bound struct {
	Path string
	Most []byte
}

// PutWhile does the same as Put if the bound holds, in one transaction. If the bound does not hold, the error is
// ErrConflict, and nothing was written. Other errors are those of Put. A bound.Path outside fleetFamilies is an error
// too. In that case nothing was written.
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
		// etcd fails a comparison of values if the key is absent, so absence is a condition of its own.
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

// Release revokes the lease, and thereby deletes its blobs. If etcd does not answer before ctx ends, the lease expires
// by itself. Errors are etcd's. A lease that has ended already is not an error.
func (l *Lease) Release(ctx context.Context) error {
	l.cancel()
	if _, err := l.store.client.Revoke(ctx, l.id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("revoke a lease: %w", err)
	}
	return nil
}

// ChangeFenced writes a change in one transaction if the leader with the given epoch still leads. It returns the
// revision of the write. The caller keeps the change below etcd's bounds: 128 operations and 1.5 MiB. Errors: the epoch
// is zero, a path is outside fleetFamilies, ErrDeposed (the leader with this epoch no longer leads), or ErrConflict (a
// condition does not hold). In these cases nothing was written. After any other error the outcome is unknown.
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
