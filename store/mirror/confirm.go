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

// ErrBehind: a client has seen a newer state than this replica has, and etcd does not answer, or has an older state itself.
var ErrBehind = errors.New("behind what the client has seen")

// errOther: etcd answers as another store, or as this one was at an earlier time.
var errOther = errors.New("the store is not the one that was read")

// Confirm returns when the current snapshot is at least as new as the snapshot that any replica had when Confirm was called. It is called
// before a replica's first answer on a stream, so that a proxy which comes from another replica is not sent an older state. Where etcd does
// not answer, or is another store, it returns nil at once, and the replica answers from what it has. The error is the context's.
func (m *Mirror) Confirm(ctx context.Context) error { return m.ConfirmAt(ctx, Seen{}) }

// Seen is what a client says that it has seen; the zero Seen: nothing.
type Seen struct {
	At    kv.Position // Cluster 0: it does not know of which store
	Place kv.Place
}

// ConfirmAt is Confirm for a client that says what it has seen. While etcd answers, its revision is newer than any that a client can have
// seen, so the client's revision is not looked at (it may be forged, or be of before a restore). While etcd does not answer, this replica may
// be behind the others without knowing, so it waits for the client's revision; at the context's deadline the error is ErrBehind. The
// client's place is looked at in any case: it shows whether etcd was restored from a backup that is older than what the client was served,
// even where this replica remembers nothing newer (issue 12, item 14). A client with a forged place delays only itself.
func (m *Mirror) ConfirmAt(ctx context.Context, seen Seen) error {
	revision, none := m.confirmed(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case none == nil:
		if err := m.reach(ctx, revision); err != nil {
			return err
		}
	case seen.At.Cluster != 0 && seen.At.Cluster != m.Status().Seen.Cluster:
	default:
		if err := m.reach(ctx, seen.At.Revision); err != nil {
			return fmt.Errorf("%w: %w", ErrBehind, err)
		}
	}
	var newest kv.Place
	err := m.until(ctx, func(s *Snapshot) bool { newest = s.place; return !newest.Before(seen.Place) })
	if err != nil {
		return fmt.Errorf("%w: a client was served %v, and the newest here is %v. Was etcd restored from a backup? %w", ErrBehind, seen.Place,
			newest, err)
	}
	return nil
}

// ConfirmNow is Confirm for a client whose statement of what it has seen is out of date: where etcd does not answer there is nothing to
// compare with, and that is an error too.
func (m *Mirror) ConfirmNow(ctx context.Context) error {
	revision, none := m.confirmed(ctx)
	switch {
	case errors.Is(none, errOther):
		return nil
	case none != nil:
		return fmt.Errorf("the store does not answer: %w", none)
	}
	return m.reach(ctx, revision)
}

// confirmed is the complete revision of a confirming read; an error: etcd does not answer, or is another store.
func (m *Mirror) confirmed(ctx context.Context) (revision int64, none error) {
	j := m.join()
	select {
	case <-j.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	s := m.Status()
	switch {
	case s.Alarm != nil:
		return 0, errOther
	case j.err != nil:
		return 0, j.err
	case s.Seen.Cluster != 0 && s.Seen.Cluster != j.stat.Cluster:
		return 0, errOther
	}
	return j.stat.Head.CompleteRevision(), nil
}

// reach waits for a snapshot of a revision or a later one.
func (m *Mirror) reach(ctx context.Context, revision int64) error {
	if err := m.until(ctx, func(s *Snapshot) bool { return s.Revision() >= revision }); err != nil {
		return fmt.Errorf("the snapshot did not reach revision %d: %w", revision, err)
	}
	return nil
}

// until waits for a snapshot. The error is the context's.
func (m *Mirror) until(ctx context.Context, enough func(*Snapshot) bool) error {
	for {
		m.mu.Lock()
		moved := m.moved
		m.mu.Unlock()
		if s := m.Current(); s != nil && enough(s) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
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
