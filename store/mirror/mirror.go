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

// Source is the store that a mirror reads. *kv.Store implements it.
type Source interface {
	// Load lists all records and the head (the value that states whether the records are complete). Revision 0 means
	// the present revision, or the last complete one if the present one is in the middle of a batch.
	Load(ctx context.Context, revision int64) (*kv.State, error)
	// Watch sends the changes after a position, until ctx ends or the watch fails. The last Update has the error, and
	// then the channel is closed.
	Watch(ctx context.Context, from kv.Position) <-chan kv.Update
	// Stat reads the head, at least as new as at the time of the call.
	Stat(ctx context.Context) (kv.Stat, error)
}

// Hooks are called by the goroutine of Run, for metrics. They must not block (store/watchdog) or change their
// arguments. A nil hook is not called.
type Hooks struct {
	Published func(Change)     // after a snapshot was published
	Relisted  func()           // after each list of the store, also the first
	Held      func([]Held)     // Status.Held, after each change; may be empty
	Problems  func([]Problem)  // Status.Problems, after each change; may be empty
	Alarm     func(error)      // Status.Alarm, when an alarm begins, and nil when it is over
	Contact   func(away error) // Status.Away, when etcd does not answer, and nil when it answers again
}

// Config configures a mirror.
type Config struct {
	Source     Source
	Logger     *slog.Logger  // nil: slog's default
	Hooks      Hooks         // zero: no hook is called
	CheckEvery time.Duration // interval of checks that the store is still the same one; 0: 5 s
	Timeout    time.Duration // time for a response before etcd counts as away; 0: 5 s
	Disk       *Disk         // nil: no snapshot is kept on disk
}

// Mirror keeps the newest complete snapshot of the store. Its methods are safe for concurrent use, but only one Run may
// be active.
type Mirror struct {
	cfg     Config
	hooks   *watchdog.Watchdog // of Config.Hooks
	current atomic.Pointer[Snapshot]
	status  atomic.Pointer[Status]
	resume  *follower // state of Run, kept for the next call of Run

	mu    sync.Mutex // guards boxes and moved, so publish and Subscribe exclude each other
	boxes map[*loop.Box[Change]]bool
	moved chan struct{} // closed at the next publication

	joins joins
}

// Status is the state of the mirror. Its slices must not be changed.
type Status struct {
	Revision int64           // revision of the published snapshot; 0: none is published
	Seen     kv.Position     // the newest position of the store
	Head     kv.Head         // the newest head that was read
	Place    kv.Place        // of the newest head that this process, or the writer of the snapshot on disk, has read
	Problems []Problem       // stored values that do not decode, by path
	Unknown  []model.Unknown // records of kinds that this build does not know, by path; Ready ignores them
	Held     []Held          // kinds whose stored records contradict the head, sorted; their last good records stay in use
	// Unchecked is the reason for which the stored records cannot be compared with the head; empty: they can be
	// compared.
	Unchecked string
	// Alarm states that the store is another one, or has an older state than the one that was read. The text names the
	// steps of the operator. The last snapshot stays in use. nil: there is no alarm.
	Alarm error
	Away  error // reason why etcd was not reached; the last snapshot stays in use; nil: etcd answers, or was not asked yet
	// Restored is set while the published snapshot comes from disk, because etcd has not delivered a valid state that
	// is as new. The value is the time of the file. At that time the snapshot was etcd's newest state, or had been
	// shortly before.
	Restored time.Time
}

// New returns an empty mirror, which Run fills. It reads the beginning of the file of cfg.Disk. It returns an error
// only if cfg has no Source.
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

// Current returns the newest complete snapshot; nil before the first one. It never returns an empty snapshot for an
// unknown state, because that would remove everything from every proxy.
func (m *Mirror) Current() *Snapshot { return m.current.Load() }

// Status returns the present state of the mirror.
func (m *Mirror) Status() Status { return *m.status.Load() }

// Ready returns nil while a complete snapshot is published and each stored record of a known kind has a version that
// decodes. Otherwise the error has the reason. A new record that does not decode makes a mirror unready again. A later
// loss of etcd does not.
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
		return errors.New("the store has no head: no leader has written yet (a leader without objects to write reports that in /debug/problems)")
	case s.Head.Revision != 0:
		return fmt.Errorf("the head at revision %d is incomplete: a batch is being written, or its leader was lost", s.Head.Revision)
	}
	return errors.New("nothing was read yet")
}

// Subscribe returns a box that receives every later change, in order. Changes that wait in the box are merged. If a
// snapshot is published already, the first change is from Empty to that snapshot. stop ends the subscription. Repeated
// calls of stop have no effect.
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

// publish replaces the current snapshot, passes the change to the subscribers, and calls the hook Published.
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
