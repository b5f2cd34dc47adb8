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
// answer. etcd's client alone returns the context's error.
type answers struct {
	at   []string
	last atomic.Pointer[string] // cause of the last failed attempt; nil after a successful one
}

// attempt is a gRPC interceptor for single attempts, below the retries of etcd's client. It stores the cause of a
// failure.
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

// named adds the addresses to an error if etcd did not answer. Other errors are returned unchanged.
func (a *answers) named(err error) error {
	if err == nil || !isAway(err) {
		return err
	}
	if why := a.last.Load(); why != nil && !strings.Contains(err.Error(), *why) {
		return fmt.Errorf("etcd at %s does not answer: %w (last attempt: %s)", strings.Join(a.at, ","), err, *why)
	}
	return fmt.Errorf("etcd at %s does not answer: %w", strings.Join(a.at, ","), err)
}

// wrap replaces the key-value and lease interfaces of a client by ones that return errors with addresses.
func (a *answers) wrap(c *clientv3.Client) { c.KV, c.Lease = namedKV{c.KV, a}, namedLease{c.Lease, a} }

type namedKV struct {
	clientv3.KV
	*answers
}

func (k namedKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r, err := k.KV.Put(ctx, key, value, opts...)
	return r, k.named(err)
}

func (k namedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r, err := k.KV.Get(ctx, key, opts...)
	return r, k.named(err)
}

func (k namedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	r, err := k.KV.Delete(ctx, key, opts...)
	return r, k.named(err)
}

func (k namedKV) Txn(ctx context.Context) clientv3.Txn { return namedTxn{k.KV.Txn(ctx), k.answers} }

type namedTxn struct {
	clientv3.Txn
	*answers
}

func (t namedTxn) If(cs ...clientv3.Cmp) clientv3.Txn { return namedTxn{t.Txn.If(cs...), t.answers} }
func (t namedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return namedTxn{t.Txn.Then(ops...), t.answers}
}
func (t namedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return namedTxn{t.Txn.Else(ops...), t.answers}
}

func (t namedTxn) Commit() (*clientv3.TxnResponse, error) {
	r, err := t.Txn.Commit()
	return r, t.named(err)
}

type namedLease struct {
	clientv3.Lease
	*answers
}

func (l namedLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	r, err := l.Lease.Grant(ctx, ttl)
	return r, l.named(err)
}

func (l namedLease) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse,
	error) {
	r, err := l.Lease.TimeToLive(ctx, id, opts...)
	return r, l.named(err)
}
