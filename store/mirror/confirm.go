package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/store/kv"
)

// joinEvery is the least time between two confirming reads: all streams that join within it share one.
const joinEvery = 50 * time.Millisecond

// joins shares confirming reads.
type joins struct {
	mu   sync.Mutex // a leaf
	next *join      // has not begun: who comes now may share it
	last time.Time  // when the last one began
}

type join struct {
	done chan struct{}
	stat kv.Stat
	err  error
}

// Confirm returns when the current snapshot is at least as new as any that any replica had when Confirm was called:
// before a replica's first answer on a stream, so that a proxy which comes from another one is not taken back. Where etcd
// does not answer, or answers as another store, the replica answers from what it has: nil. The error is the context's.
func (m *Mirror) Confirm(ctx context.Context) error { return m.ConfirmAt(ctx, kv.Position{}) }

// ConfirmAt is Confirm for a client that says what it has seen; the zero Position: nothing, Cluster 0: it does not know of
// which store. It counts where etcd does not answer: a replica that was cut off may be behind the others without knowing.
// It then waits until it has that revision, or the context's deadline, and after that answers from what it has. While
// etcd answers, its word is newer than any client's, and a revision that it does not have (forged, or of before a restore)
// is nobody's.
func (m *Mirror) ConfirmAt(ctx context.Context, floor kv.Position) error {
	return m.confirm(ctx, func(error) error {
		if seen := m.Status().Seen.Cluster; floor.Cluster != 0 && floor.Cluster != seen {
			return nil
		}
		if err := m.reach(ctx, floor.Revision); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return nil
	})
}

// ConfirmNow is Confirm for a client whose word is old: where etcd does not answer there is nothing to go by, and that is an
// error too.
func (m *Mirror) ConfirmNow(ctx context.Context) error {
	return m.confirm(ctx, func(err error) error { return fmt.Errorf("the store does not answer: %w", err) })
}

// confirm waits for what a confirming read says; otherwise is asked where that fails.
func (m *Mirror) confirm(ctx context.Context, otherwise func(error) error) error {
	j := m.join()
	select {
	case <-j.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	s := m.Status()
	switch {
	case s.Alarm != nil:
		return nil
	case j.err != nil:
		return otherwise(j.err)
	case s.Seen.Cluster != 0 && s.Seen.Cluster != j.stat.Cluster:
		return nil
	}
	return m.reach(ctx, j.stat.Head.CompleteRevision())
}

// reach waits for a snapshot of a revision or a later one.
func (m *Mirror) reach(ctx context.Context, revision int64) error {
	for {
		m.mu.Lock()
		moved := m.moved
		m.mu.Unlock()
		if s := m.Current(); s != nil && s.Revision() >= revision {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("the snapshot did not reach revision %d: %w", revision, ctx.Err())
		}
	}
}

// join is a read that begins after this call.
func (m *Mirror) join() *join {
	m.joins.mu.Lock()
	defer m.joins.mu.Unlock()
	if m.joins.next != nil {
		return m.joins.next
	}
	j := &join{done: make(chan struct{})}
	m.joins.next = j
	wait := time.Until(m.joins.last.Add(joinEvery))
	go func() {
		defer close(j.done)
		time.Sleep(wait)
		m.joins.mu.Lock()
		m.joins.next, m.joins.last = nil, time.Now()
		m.joins.mu.Unlock()
		timeout := time.Second
		if m.Status().Away != nil {
			timeout = 100 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		j.stat, j.err = m.cfg.Source.Stat(ctx)
	}()
	return j
}
