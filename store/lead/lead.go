// Package lead elects the one process that writes, the leader, by a key in etcd under a lease. A term is the time for
// which a process leads. Its epoch identifies the term.
//
// Owns: this candidate's election key and lease; it deletes keys of other candidates on request (Depose, Config.Alone).
// Reads: store/kv. Never: trusts a clock for the safety of writes to etcd. The epoch fences those writes (kv.Batch), so
// a leader that was stopped and continues cannot change etcd. Only Until, for writes outside etcd, uses a clock.
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

// Config configures a candidate. Store and Name are required.
type Config struct {
	Store *kv.Store
	// Path is the full key of the election's folder in etcd, without a slash at the end. If it is empty, the folder is
	// kv.Store.LeaderPath, in which the revision's ingesters elect their leader.
	Path   string
	Name   string        // name of this process, the value of its election key
	Lease  time.Duration // length of the lease, in whole seconds; 0: 10 s
	Retry  time.Duration // longest pause before a new candidacy after a failure; 0: 2 s
	Logger *slog.Logger  // nil: slog's default
	// Alone means that no other process can be a candidate (an embedded etcd in a locked directory). The election keys
	// of a killed process are then deleted immediately, without waiting for its lease to expire.
	Alone bool
}

// Elector is one candidate. Its methods may be called from any goroutine, but only one call of Run may be in progress.
type Elector struct {
	cfg   Config
	epoch atomic.Pointer[kv.Epoch] // nil while this process does not lead
	lease atomic.Int64             // ID of the lease of the epoch
}

// New returns a candidate. Errors: Store or Name is missing, Lease is not a positive whole number of seconds, or Retry
// is negative.
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
	if cfg.Retry < 0 {
		return nil, fmt.Errorf("election: retry %v must not be negative", cfg.Retry)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Elector{cfg: cfg}, nil
}

// Epoch returns the epoch of this process's term, and false between terms. For Epoch, a term ends when the function fn
// of Run returns, which may be after the epoch was lost.
func (e *Elector) Epoch() (kv.Epoch, bool) {
	if p := e.epoch.Load(); p != nil {
		return *p, true
	}
	return kv.Epoch{}, false
}

// ErrNotLeading means that this process does not lead, or that its lease has ended.
var ErrNotLeading = errors.New("this process does not lead")

// Until returns the time up to which this process certainly leads, unless its key is deleted. That time is the end of
// its lease without further renewal, as etcd reports it, on this process's monotonic clock. Until is for writes that
// etcd cannot fence. The next leader is elected after that time. In the last second of the lease the error is
// ErrNotLeading already. All other errors are etcd's.
func (e *Elector) Until(ctx context.Context) (time.Time, error) {
	if e.epoch.Load() == nil {
		return time.Time{}, ErrNotLeading
	}
	asked := time.Now()
	lease, err := e.cfg.Store.Client().TimeToLive(ctx, clientv3.LeaseID(e.lease.Load()))
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("remaining life of the lease: %w", err)
	case lease.TTL <= 0:
		return time.Time{}, ErrNotLeading
	}
	return asked.Add(time.Duration(lease.TTL) * time.Second), nil // TTL is in whole seconds, rounded down
}

// Leader reads the name and the epoch of the present leader. Both are empty if no process leads. Errors are etcd's.
func (e *Elector) Leader(ctx context.Context) (string, kv.Epoch, error) {
	resp, err := e.cfg.Store.Client().Get(ctx, e.cfg.Path+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", kv.Epoch{}, fmt.Errorf("read the leader: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return "", kv.Epoch{}, nil
	}
	first := resp.Kvs[0]
	return string(first.Value), kv.Epoch{Key: string(first.Key), Revision: first.CreateRevision}, nil
}

// Waiting reports whether the election has a candidate besides the leader. Errors are etcd's.
func (e *Elector) Waiting(ctx context.Context) (bool, error) {
	resp, err := e.cfg.Store.Client().Get(ctx, e.cfg.Path+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("count candidates: %w", err)
	}
	return resp.Count > 1, nil
}

// Depose ends the term of an epoch by deleting its key. The candidate that has waited longest then leads. Depose
// returns false if the term has ended already. Errors are etcd's.
func (e *Elector) Depose(ctx context.Context, epoch kv.Epoch) (bool, error) {
	is := clientv3.Compare(clientv3.CreateRevision(epoch.Key), "=", epoch.Revision)
	resp, err := e.cfg.Store.Client().Txn(ctx).If(is).Then(clientv3.OpDelete(epoch.Key)).Commit()
	if err != nil {
		return false, fmt.Errorf("end the term of epoch %d: %w", epoch.Revision, err)
	}
	return resp.Succeeded, nil
}

// Run takes part in the election until the context ends. When elected, it calls fn with the epoch and a context. This
// context ends with the epoch (the lease was lost, or the key was deleted) and with Run's own context. Calls of fn do
// not overlap. When fn returns, Run logs its error and resigns, so that the next candidate need not wait. After that,
// Run campaigns again. If the epoch has not ended, Run first pauses for a time between half of Retry and Retry.
// Failures of etcd are logged and retried. Run returns the context's error, after fn has returned.
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

// clear deletes the election keys of earlier processes, and sets *done. It does nothing if *done is set.
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

// term campaigns, calls fn once elected, and resigns. The result nil means that the epoch ended during fn.
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
	e.cfg.Logger.Info("leadership acquired", slog.Int64("epoch", epoch.Revision), slog.String("name", e.cfg.Name))
	err = fn(ctx, epoch)
	e.epoch.Store(nil)
	lost := errors.Is(context.Cause(ctx), errLost)
	log := e.cfg.Logger.With(slog.Int64("epoch", epoch.Revision), slog.Bool("lost", lost))
	if err != nil {
		log = log.With(slog.Any("reason", err))
	}
	log.Info("leadership ended")
	switch {
	case lost:
		return nil
	case err == nil:
		return errors.New("the leader's work returned while it led")
	}
	return err
}

// session acquires a lease and renews it.
func (e *Elector) session(ctx context.Context, client *clientv3.Client) (*concurrency.Session, error) {
	asking, cancel := context.WithTimeout(ctx, e.cfg.Lease)
	defer cancel()
	lease, err := client.Grant(asking, int64(e.cfg.Lease/time.Second))
	if err != nil {
		return nil, err
	}
	// The session must not end with ctx, because the lease must live until fn has returned.
	return concurrency.NewSession(client, concurrency.WithLease(lease.ID), concurrency.WithTTL(int(e.cfg.Lease/time.Second)))
}

// resign revokes the lease, and thereby deletes the key. It takes one second at most. If etcd does not answer, the
// lease expires by itself.
func (e *Elector) resign(client *clientv3.Client, session *concurrency.Session) {
	session.Orphan()
	ctx, cancel := context.WithTimeout(client.Ctx(), time.Second)
	defer cancel()
	if _, err := client.Revoke(ctx, session.Lease()); err != nil {
		e.cfg.Logger.Debug("the lease was not revoked: it expires by itself", slog.Any("error", err))
	}
}

// keyGone waits until the election key is deleted. It returns false if the watch ends first.
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
