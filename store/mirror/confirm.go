package mirror

import (
	"context"
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
func (m *Mirror) Confirm(ctx context.Context) error {
	j := m.join()
	select {
	case <-j.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s := m.Status(); j.err != nil || s.Alarm != nil || s.Seen.Cluster != 0 && s.Seen.Cluster != j.stat.Cluster {
		return nil
	}
	for {
		m.mu.Lock()
		moved := m.moved
		m.mu.Unlock()
		if s := m.Current(); s != nil && s.Revision() >= j.stat.Head.CompleteRevision() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("the snapshot did not reach revision %d: %w", j.stat.Head.CompleteRevision(), ctx.Err())
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
