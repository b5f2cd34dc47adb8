package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/watchdog"
)

// Source is what the mirror reads: a *kv.Store.
type Source interface {
	Load(ctx context.Context, revision int64) (*kv.State, error)
	Watch(ctx context.Context, from kv.Position) <-chan kv.Update
	Stat(ctx context.Context) (kv.Stat, error)
}

// Hooks are called when the loop does something, for metrics. They are called by the loop and must not block (store/watchdog); nil ones are left out.
type Hooks struct {
	Published func(Change)
	Relisted  func()           // the list was read again
	Held      func([]Held)     // kinds that are held, whenever that changed
	Problems  func([]Problem)  // values that do not decode, whenever that changed
	Alarm     func(error)      // the store is another one, or has older state than was read; nil: no more
	Contact   func(away error) // etcd does not answer, nil: it answers; at every change
}

// Config of a mirror.
type Config struct {
	Source     Source
	Logger     *slog.Logger  // nil: slog's default
	Hooks      Hooks         // zero: none is called
	CheckEvery time.Duration // how often the store is asked whether it is the one that was read; 0: 5 s
	Timeout    time.Duration // how long it may take to answer before it counts as away; 0: 5 s
	Disk       *Disk         // nil: nothing is kept on disk
}

// Mirror keeps the newest complete snapshot of the store.
type Mirror struct {
	cfg     Config
	hooks   *watchdog.Watchdog // of Config.Hooks
	current atomic.Pointer[Snapshot]
	status  atomic.Pointer[Status]
	resume  *follower // owned by Run: what it knows, kept from one Run to the next

	mu    sync.Mutex // a leaf; publishing and subscribing exclude each other
	boxes map[*loop.Box[Change]]bool
	moved chan struct{} // closed at the next publication

	joins joins
}

// Status is what the loop knows of itself.
type Status struct {
	Revision int64       // of the published snapshot, 0: none
	Seen     kv.Position // the newest that the store was seen at
	Head     kv.Head
	Place    kv.Place // the newest that was read, by this process or the one that wrote the snapshot on disk
	Problems []Problem
	Unknown  []model.Unknown // records of kinds that this build does not know; they make no mirror unready
	Held     []Held          // kinds whose stored records are not what the head says, by kind: their last good ones stand
	// Unchecked is why the stored records cannot be compared with the head; empty: they are.
	Unchecked string
	Alarm     error // the store is another one, or has older state than was read: the last snapshot stands. It names the way out
	Away      error // why etcd was not reached lately; the last snapshot stands
	// Restored is when the snapshot from disk, which stands because etcd was never reached, was known to be the newest; zero:
	// the snapshot is etcd's.
	Restored time.Time
}

// New checks the configuration. The mirror is empty until Run. An error: there is no source.
func New(cfg Config) (*Mirror, error) {
	if cfg.Source == nil {
		return nil, errors.New("mirror: a source is needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.CheckEvery == 0 {
		cfg.CheckEvery = 5 * time.Second
	}
	if cfg.Disk != nil {
		disk := *cfg.Disk
		disk.MaxAge, disk.Every = cmp.Or(disk.MaxAge, 24*time.Hour), cmp.Or(disk.Every, 30*time.Second)
		cfg.Disk = &disk
	}
	m := &Mirror{cfg: cfg, hooks: watchdog.New(cfg.Logger, "mirror: hooks"), boxes: map[*loop.Box[Change]]bool{}, moved: make(chan struct{})}
	m.status.Store(&Status{Place: m.cfg.Disk.remembers()})
	return m, nil
}

// Current is the newest complete snapshot; nil until there was one. There is never an empty one in place of one that is
// not known: an empty snapshot would take everything from every proxy.
func (m *Mirror) Current() *Snapshot { return m.current.Load() }

// Status is what the loop knows of itself.
func (m *Mirror) Status() Status { return *m.status.Load() }

// Ready is nil when a complete snapshot was published and no record is missing from it; else it says why. Losing etcd
// later does not make a mirror unready: it answers from what it has.
func (m *Mirror) Ready() error {
	s := m.Status()
	for _, p := range s.Problems {
		if !p.Kept {
			return fmt.Errorf("a stored value does not decode: %v", p)
		}
	}
	switch {
	case m.Current() != nil:
		return nil
	case slices.ContainsFunc(s.Held, Held.known):
		return fmt.Errorf("no good records of a kind are known: %v", s.Held[slices.IndexFunc(s.Held, Held.known)])
	case s.Alarm != nil:
		return s.Alarm
	case s.Away != nil:
		return fmt.Errorf("nothing was read yet: %w", s.Away)
	case s.Head.Err != nil:
		return s.Head.Err
	case s.Head.Revision == 0 && s.Seen.Cluster != 0:
		return errors.New("the store has no head: no leader has written yet (one that has nothing to write says so in /debug/problems)")
	case s.Head.Revision != 0:
		return fmt.Errorf("the head at revision %d is incomplete: a batch is being written, or its leader was lost", s.Head.Revision)
	}
	return errors.New("nothing was read yet")
}

// Subscribe gives a box that receives every change from now on, in order; those that wait are merged into one. Where a
// snapshot was published already, the first change is from Empty to it. stop ends the subscription.
func (m *Mirror) Subscribe() (box *loop.Box[Change], stop func()) {
	box = loop.NewBox(Merge)
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.current.Load(); s != nil {
		box.Put(Diff(Empty(), s))
	}
	m.boxes[box] = true
	return box, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.boxes, box)
	}
}

func (m *Mirror) publish(c Change) {
	m.mu.Lock()
	m.current.Store(c.New)
	for box := range m.boxes {
		box.Put(c)
	}
	close(m.moved)
	m.moved = make(chan struct{})
	m.mu.Unlock()
	if m.cfg.Hooks.Published != nil {
		m.hooks.Call(func() { m.cfg.Hooks.Published(c) })
	}
}
