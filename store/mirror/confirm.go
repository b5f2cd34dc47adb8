package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/store/kv"
)

// joinEvery is the least time between the starts of two confirming reads, which read etcd's head. Streams that begin
// within this time share one read.
const joinEvery = 50 * time.Millisecond

// joins shares confirming reads between callers.
type joins struct {
	mu   sync.Mutex // no other lock is taken while it is held
	next *join      // read that has not begun yet, shared by new callers; nil: there is no such read
	last time.Time  // start of the last read
}

// join is one confirming read. Its result is set when done is closed.
type join struct {
	done chan struct{}
	stat kv.Stat
	err  error
}

// ErrBehind means that a client has seen a newer state than this replica has. The replica cannot read the newer state:
// etcd did not answer, was replaced by another store, or has an older state too.
var ErrBehind = errors.New("behind the state that the client has seen")

// errOther means that etcd was replaced by another store, or has gone back to an earlier state.
var errOther = errors.New("the store is not the one that was read")

// Confirm waits until the current snapshot is at least as new as any replica's at the time of the call. A replica calls
// it before its first response on a stream. So a proxy that comes from another replica does not receive an older state.
// If etcd does not answer within about a second, or was replaced by another store, Confirm returns nil as soon as there
// is a snapshot. The replica then serves that snapshot. Confirm returns an error only if ctx ends first. The error
// wraps the context's error. If etcd did not answer and there was no snapshot, the error wraps ErrBehind too.
func (m *Mirror) Confirm(ctx context.Context) error { return m.ConfirmAt(ctx, Seen{}) }

// Seen is the newest state that a client claims to have seen. The zero Seen claims nothing.
type Seen struct {
	At    kv.Position // position in etcd; if Cluster is 0 (not known), Revision counts nevertheless
	Place kv.Place    // position among all states that leaders wrote; zero: not known
}

// ConfirmAt is Confirm for a client that states the newest state it has seen. If etcd answers, ConfirmAt waits for
// etcd's newest complete revision, and ignores the client's. The client's revision may be forged, or come from the time
// before a restore. If etcd does not answer or was replaced by another store, ConfirmAt waits for the client's
// revision, unless the client states another cluster.
//
// In all cases ConfirmAt then waits for the client's Place. The Place shows that etcd was restored from a backup older
// than the client's state, even if this replica remembers no newer state than the backup. A client with a forged Place
// delays only itself.
//
// ConfirmAt returns an error only if ctx ends first. The error wraps the context's error. If ConfirmAt was waiting for
// the client's revision or Place, the error wraps ErrBehind too.
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

// ConfirmNow is Confirm for a client whose Seen is out of date. If etcd does not answer within about a second,
// ConfirmNow returns an error. If etcd was replaced by another store, it returns nil without waiting for a snapshot. If
// ctx ends first, the error wraps the context's.
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

// confirmed returns the newest complete revision by a confirming read, or 0 if no revision is complete yet. Errors:
// etcd does not answer, etcd was replaced by another store (errOther), or ctx has ended.
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

// reach waits for a snapshot at a revision or later. The error wraps the context's.
func (m *Mirror) reach(ctx context.Context, revision int64) error {
	if err := m.until(ctx, func(s *Snapshot) bool { return s.Revision() >= revision }); err != nil {
		return fmt.Errorf("the snapshot did not reach revision %d: %w", revision, err)
	}
	return nil
}

// until waits for a snapshot for which the function enough returns true. The error is the context's.
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

// join returns a read that begins after this call.
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
