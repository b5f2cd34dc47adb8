// Package lead elects the one process that writes.
//
// Owns: this candidate's election key and lease; it takes another's key away where it is told to.  Reads: store/kv.  Never: trusts a clock for safety: writes are fenced by
// the epoch that it hands out (kv.Batch), so a leader that was stopped and goes on can do no harm.
package lead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"navarch.io/navarch/store/kv"
)

// Config of a candidate.
type Config struct {
	Store *kv.Store
	// etcd's folder of the election, without a slash at the end; empty: that of the revision's ingester (kv.Store.LeaderPath)
	Path   string
	Name   string        // of this process, shown as the leader's name
	Lease  time.Duration // how long a leader may be silent, whole seconds; 0: 10 s
	Retry  time.Duration // longest pause between two candidacies after a failure; 0: 2 s
	Logger *slog.Logger  // nil: slog's default
	// Alone: there is no other process that could be a candidate (an embedded etcd, in a locked directory). What a
	// process that was killed left of its term is removed at once, instead of waiting for its lease to end.
	Alone bool
}

// Elector is one candidate.
type Elector struct {
	cfg   Config
	epoch atomic.Pointer[kv.Epoch] // nil: not leading
	lease atomic.Int64             // of the epoch
}

// New checks the configuration: an error says that there is no store or name, or that the lease is not of whole seconds.
func New(cfg Config) (*Elector, error) {
	if cfg.Store == nil || cfg.Name == "" {
		return nil, errors.New("election: a store and a name are needed")
	}
	if cfg.Path == "" {
		cfg.Path = cfg.Store.LeaderPath()
	}
	if cfg.Lease == 0 {
		cfg.Lease = 10 * time.Second
	}
	if cfg.Retry == 0 {
		cfg.Retry = 2 * time.Second
	}
	if cfg.Lease < time.Second || cfg.Lease%time.Second != 0 {
		return nil, fmt.Errorf("election: lease %v: want whole seconds", cfg.Lease)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Elector{cfg: cfg}, nil
}

// Epoch is this process's term while it leads; false while it does not.
func (e *Elector) Epoch() (kv.Epoch, bool) {
	if p := e.epoch.Load(); p != nil {
		return *p, true
	}
	return kv.Epoch{}, false
}

// ErrNotLeading: this process does not lead, or its lease has ended.
var ErrNotLeading = errors.New("this process does not lead")

// Until asks etcd up to when this process leads for certain, unless somebody takes its key away: so long its lease lives at least, also where
// it is renewed no more. It is for writes that etcd cannot fence: whoever is elected next is so after that time. Times are of this process's
// monotonic clock.
func (e *Elector) Until(ctx context.Context) (time.Time, error) {
	if e.epoch.Load() == nil {
		return time.Time{}, ErrNotLeading
	}
	asked := time.Now()
	lease, err := e.cfg.Store.Client().TimeToLive(ctx, clientv3.LeaseID(e.lease.Load()))
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("how long the lease lives: %w", err)
	case lease.TTL <= 0:
		return time.Time{}, ErrNotLeading
	}
	return asked.Add(time.Duration(lease.TTL) * time.Second), nil // whole seconds, rounded down
}

// Leader asks etcd who leads: the name and epoch; an empty name where nobody does. An error is of etcd's client.
func (e *Elector) Leader(ctx context.Context) (string, kv.Epoch, error) {
	resp, err := e.cfg.Store.Client().Get(ctx, e.cfg.Path+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", kv.Epoch{}, fmt.Errorf("read who leads: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return "", kv.Epoch{}, nil
	}
	first := resp.Kvs[0]
	return string(first.Value), kv.Epoch{Key: string(first.Key), Revision: first.CreateRevision}, nil
}

// Waiting says whether there is another candidate beside the leader. An error is of etcd's client.
func (e *Elector) Waiting(ctx context.Context) (bool, error) {
	resp, err := e.cfg.Store.Client().Get(ctx, e.cfg.Path+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("count candidates: %w", err)
	}
	return resp.Count > 1, nil
}

// Depose ends another process's term, if it is still this one: its context ends, and who has waited longest leads. false: another term has begun. An error is of
// etcd's client.
func (e *Elector) Depose(ctx context.Context, epoch kv.Epoch) (bool, error) {
	is := clientv3.Compare(clientv3.CreateRevision(epoch.Key), "=", epoch.Revision)
	resp, err := e.cfg.Store.Client().Txn(ctx).If(is).Then(clientv3.OpDelete(epoch.Key)).Commit()
	if err != nil {
		return false, fmt.Errorf("end the term of epoch %d: %w", epoch.Revision, err)
	}
	return resp.Succeeded, nil
}

// Run is a candidate until the context ends. Each time it is elected it calls fn with its epoch and a context that ends
// when the epoch does: the lease was lost, the key was taken away, or Run's own context ended. There is never more than
// one call. When fn returns, Run resigns, so that the next candidate need not wait, and campaigns again: at once when the
// epoch had ended, after a pause when fn failed.
func (e *Elector) Run(ctx context.Context, fn func(context.Context, kv.Epoch) error) error {
	cleared := !e.cfg.Alone
	for ctx.Err() == nil {
		err := e.clear(ctx, &cleared)
		if err == nil {
			err = e.term(ctx, fn)
		}
		if ctx.Err() != nil || err == nil {
			continue
		}
		pause := e.cfg.Retry/2 + rand.N(e.cfg.Retry/2+1)
		e.cfg.Logger.Warn("leadership or candidacy failed, trying again", slog.Any("error", err), slog.Duration("pause", pause))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// clear removes what an earlier process left of the election, once.
func (e *Elector) clear(ctx context.Context, done *bool) error {
	if *done {
		return nil
	}
	_, err := e.cfg.Store.Client().Delete(ctx, e.cfg.Path+"/", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("clear the election: %w", err)
	}
	*done = true
	return nil
}

var errLost = errors.New("lost leadership")

// term is one candidacy: it waits to be elected, leads, and resigns. nil: the epoch ended.
func (e *Elector) term(ctx context.Context, fn func(context.Context, kv.Epoch) error) error {
	client := e.cfg.Store.Client()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	session, err := e.session(ctx, client)
	if err != nil {
		return fmt.Errorf("lease for the election: %w", err)
	}
	defer e.resign(client, session)
	go func() { // ends with the session, which ends with this call
		<-session.Done()
		cancel(errLost)
	}()
	election := concurrency.NewElection(session, e.cfg.Path)
	if err := election.Campaign(ctx, e.cfg.Name); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	epoch := kv.Epoch{Key: election.Key(), Revision: election.Rev()}
	go func() {
		if keyGone(ctx, client, epoch) {
			cancel(errLost)
		}
	}()
	e.lease.Store(int64(session.Lease()))
	e.epoch.Store(&epoch)
	e.cfg.Logger.Info("leading", slog.Int64("epoch", epoch.Revision), slog.String("name", e.cfg.Name))
	err = fn(ctx, epoch)
	e.epoch.Store(nil)
	lost := errors.Is(context.Cause(ctx), errLost)
	log := e.cfg.Logger.With(slog.Int64("epoch", epoch.Revision), slog.Bool("lost", lost))
	if err != nil {
		log = log.With(slog.Any("reason", err))
	}
	log.Info("not leading any more")
	switch {
	case lost:
		return nil
	case err == nil:
		return errors.New("the leader's work returned while it led")
	}
	return err
}

// session takes a lease and keeps it alive.
func (e *Elector) session(ctx context.Context, client *clientv3.Client) (*concurrency.Session, error) {
	asking, cancel := context.WithTimeout(ctx, e.cfg.Lease)
	defer cancel()
	lease, err := client.Grant(asking, int64(e.cfg.Lease/time.Second))
	if err != nil {
		return nil, err
	}
	// Not ctx: the lease must outlive it until fn has returned.
	return concurrency.NewSession(client, concurrency.WithLease(lease.ID), concurrency.WithTTL(int(e.cfg.Lease/time.Second)))
}

// resign gives the lease back, and with it the key. It takes a second at most: where etcd does not answer, the lease ends
// by itself.
func (e *Elector) resign(client *clientv3.Client, session *concurrency.Session) {
	session.Orphan()
	ctx, cancel := context.WithTimeout(client.Ctx(), time.Second)
	defer cancel()
	if _, err := client.Revoke(ctx, session.Lease()); err != nil {
		e.cfg.Logger.Debug("lease was not given back, it ends by itself", slog.Any("error", err))
	}
}

// keyGone waits until the election key is deleted; false where the context ended first.
func keyGone(ctx context.Context, client *clientv3.Client, epoch kv.Epoch) bool {
	for resp := range client.Watch(ctx, epoch.Key, clientv3.WithRev(epoch.Revision+1)) {
		for _, event := range resp.Events {
			if event.Type == mvccpb.Event_DELETE {
				return true
			}
		}
	}
	return false
}
