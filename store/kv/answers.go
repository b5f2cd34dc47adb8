package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/store/problem"
)

// answers adds the addresses of etcd, and the cause of the last failed attempt, to errors of requests that etcd did not
// answer. etcd's client itself returns the context's error alone.
type answers struct {
	at   []string
	last atomic.Pointer[string] // cause of the last unanswered attempt; nil after a success
}

// attempt is a gRPC interceptor for single attempts, below the retries of etcd's client. It stores why etcd did not
// answer, and clears the cause after a success.
func (a *answers) attempt(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	err := invoke(ctx, method, in, out, conn, opts...)
	switch {
	case err == nil:
		a.last.Store(nil)
	case isAway(err):
		why := problem.Cause(errors.New(status.Convert(err).Message()))
		a.last.Store(&why)
	}
	return err
}

// named adds the addresses and the last cause to an error if etcd did not answer. Other errors are translated.
func (a *answers) named(err error) error {
	if err == nil || !isAway(err) {
		return translate(err)
	}
	if why := a.last.Load(); why != nil && !strings.Contains(err.Error(), *why) {
		return fmt.Errorf("etcd at %s does not answer: %w (last attempt: %s)", strings.Join(a.at, ","), err, *why)
	}
	return fmt.Errorf("etcd at %s does not answer: %w", strings.Join(a.at, ","), err)
}

// wrap makes Put, Get, Delete, Compact, Txn, Grant and TimeToLive of a client return errors that the method named has
// changed.
func (a *answers) wrap(c *clientv3.Client) { c.KV, c.Lease = namedKV{c.KV, a}, namedLease{c.Lease, a} }

type namedKV struct {
	clientv3.KV
	*answers
}

// Put implements clientv3.KV.
func (k namedKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r, err := k.KV.Put(ctx, key, value, opts...)
	return r, k.named(err)
}

// Get implements clientv3.KV.
func (k namedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r, err := k.KV.Get(ctx, key, opts...)
	return r, k.named(err)
}

// Delete implements clientv3.KV.
func (k namedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	r, err := k.KV.Delete(ctx, key, opts...)
	return r, k.named(err)
}

// Compact implements clientv3.KV.
func (k namedKV) Compact(ctx context.Context, revision int64, opts ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	r, err := k.KV.Compact(ctx, revision, opts...)
	return r, k.named(err)
}

// Txn implements clientv3.KV.
func (k namedKV) Txn(ctx context.Context) clientv3.Txn { return namedTxn{k.KV.Txn(ctx), k.answers} }

type namedTxn struct {
	clientv3.Txn
	*answers
}

// If implements clientv3.Txn.
func (t namedTxn) If(cs ...clientv3.Cmp) clientv3.Txn { return namedTxn{t.Txn.If(cs...), t.answers} }

// Then implements clientv3.Txn.
func (t namedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return namedTxn{t.Txn.Then(ops...), t.answers}
}

// Else implements clientv3.Txn.
func (t namedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return namedTxn{t.Txn.Else(ops...), t.answers}
}

// Commit implements clientv3.Txn.
func (t namedTxn) Commit() (*clientv3.TxnResponse, error) {
	r, err := t.Txn.Commit()
	return r, t.named(err)
}

type namedLease struct {
	clientv3.Lease
	*answers
}

// Grant implements clientv3.Lease.
func (l namedLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	r, err := l.Lease.Grant(ctx, ttl)
	return r, l.named(err)
}

// TimeToLive implements clientv3.Lease.
func (l namedLease) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse,
	error) {
	r, err := l.Lease.TimeToLive(ctx, id, opts...)
	return r, l.named(err)
}
