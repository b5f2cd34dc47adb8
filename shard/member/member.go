package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv"
)

// Config configures New. Store, Name, Streams, Revision and Ring are required.
type Config struct {
	Store   *kv.Store
	Name    string // unique in the mesh: the pod's name
	Address string // host:port that agents dial; empty: unknown
	Zone    string // may be empty
	Version string // of the build; may be empty
	Level   uint32 // newest level (format) of stored configuration that this build reads; 0 means 1
	Weight  uint32 // full weight of this replica, at most ring.FullWeight; 0: ring.FullWeight
	// Lease is the time after which the record of a crashed replica disappears and its shards are reassigned. It is a
	// whole number of seconds; 0: 10 s.
	Lease   time.Duration
	Ramp    time.Duration // time in which the weight grows (func Weight); 0: 60 s, negative: full weight at once
	Streams *Streams      // counts the streams of this replica
	// Revision returns the revision of the snapshot that this replica serves. The newest revision of the store is not
	// suitable, because each write of this record would raise it. Ring returns the present ring; nil: there is no ring.
	// Both functions are called often, by any goroutine.
	Revision func() int64
	Ring     func() *ring.Ring
	// Sums returns Record.Sums. If the function is nil, the record has no sums. The result should change at most once
	// in ten seconds.
	Sums func() []byte
	Log  *slog.Logger // nil: slog's default
}

// Member maintains this replica's record in etcd. It is safe for concurrent use.
type Member struct {
	cfg  Config
	wake chan struct{}

	mu              sync.Mutex // a leaf lock: guards the fields below
	state           State
	ready           time.Time // when the replica became ready; zero: not yet ready
	above           bool      // the stored level is above the newest level that this build reads
	compared        bool      // the stored level was compared with the newest level that this build reads
	self            Record    // only the fields that never change
	leavingRecorded chan struct{}
}

// New returns a Member in state Warming, without sending a request. Run must be called. Errors:
//
//   - Store, Streams, Revision or Ring is missing.
//   - Name is empty, has a slash, or has more than ring.MaxName bytes.
//   - Address, Zone or Version has more than ring.MaxName bytes.
//   - Weight is above ring.FullWeight.
//   - Lease is not a positive whole number of seconds.
func New(cfg Config) (*Member, error) {
	if cfg.Lease == 0 {
		cfg.Lease = 10 * time.Second
	}
	if cfg.Ramp == 0 {
		cfg.Ramp = time.Minute
	}
	if cfg.Weight == 0 {
		cfg.Weight = ring.FullWeight
	}
	switch {
	case cfg.Store == nil || cfg.Streams == nil || cfg.Revision == nil || cfg.Ring == nil:
		return nil, errors.New("member: a store, a counter, a revision and a ring are needed")
	case cfg.Name == "" || strings.Contains(cfg.Name, "/") || len(cfg.Name) > ring.MaxName:
		return nil, fmt.Errorf("member: name %q is empty, too long or has a slash", cfg.Name)
	case len(cfg.Address) > ring.MaxName || len(cfg.Zone) > ring.MaxName || len(cfg.Version) > ring.MaxName:
		return nil, fmt.Errorf("member: address, zone or version is longer than %d bytes", ring.MaxName)
	case cfg.Weight > ring.FullWeight:
		return nil, fmt.Errorf("member: weight %d, at most %d", cfg.Weight, ring.FullWeight)
	case cfg.Lease < time.Second || cfg.Lease%time.Second != 0:
		return nil, fmt.Errorf("member: lease %v: want whole seconds", cfg.Lease)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Member{cfg: cfg, wake: make(chan struct{}, 1), state: Warming, leavingRecorded: make(chan struct{}), self: Record{
		Name: cfg.Name, Address: cfg.Address, Zone: cfg.Zone, Version: cfg.Version, Level: max(cfg.Level, 1), Incarnation: rand.Uint64(),
	}}, nil
}

// Ready declares that the replica can serve and may own shards. It does not wait until the state is written to etcd.
// After Leave it has no effect.
func (m *Member) Ready() { m.set(Ready) }

// Leave declares that the replica leaves, so that its shards are reassigned. It does not wait until the state is
// written to etcd (LeavingRecorded).
func (m *Member) Leave() { m.set(Leaving) }

// LeavingRecorded returns a channel that is closed once Run has written the state Leaving to etcd.
func (m *Member) LeavingRecorded() <-chan struct{} { return m.leavingRecorded }

func (m *Member) set(s State) {
	m.mu.Lock()
	if s > m.state {
		m.state = s
		if s == Ready {
			m.ready = time.Now()
		}
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Record returns the content that the record should have at the time now. The stored record may be older. While Above
// returns an error, the stored state is Warming although the result has the state Ready.
func (m *Member) Record(now time.Time) Record {
	r := m.self
	m.mu.Lock()
	r.State, r.Weight = m.state, m.cfg.Weight
	if r.State != Leaving {
		since := time.Duration(0)
		if !m.ready.IsZero() {
			since = now.Sub(m.ready)
		}
		r.Weight = Weight(since, m.cfg.Ramp, m.cfg.Weight)
	}
	m.mu.Unlock()
	r.Revision, r.Load = m.cfg.Revision(), m.cfg.Streams.Load(m.cfg.Ring())
	if m.cfg.Sums != nil {
		r.Sums = m.cfg.Sums()
	}
	return r
}

// Run maintains the record until ctx ends. At the end it removes the record with its lease, and returns the error of
// ctx. If etcd does not confirm the removal within a second, the lease expires by itself. After an error of etcd or a
// lost lease, Run logs the error and tries again.
func (m *Member) Run(ctx context.Context) error {
	for pause := 250 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := m.lease(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > m.cfg.Lease {
			pause = 250 * time.Millisecond
		}
		m.cfg.Log.Warn("this replica's record is not in etcd, trying again", slog.Any("error", err), slog.Duration("pause", pause))
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return ctx.Err()
}

// lease maintains the record under one lease of etcd, until ctx or the lease ends or a request fails. It returns the
// reason as an error, which is never nil.
func (m *Member) lease(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, m.cfg.Lease)
	lease, err := m.cfg.Store.Lease(asking, m.cfg.Lease)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := lease.Release(release); err != nil {
			m.cfg.Log.Debug("the replica's lease was not released, it expires by itself", slog.Any("error", err))
		}
	}()
	var w writes
	tick := time.NewTicker(time.Second) // interval of checks; writes.due decides about writing
	defer tick.Stop()
	for {
		now := time.Now()
		if next := m.Record(now); w.due(now, next) {
			writing, cancel := context.WithTimeout(ctx, m.cfg.Lease)
			asked := next.State
			next, err = m.write(writing, lease, next)
			cancel()
			if err != nil {
				return err
			}
			w.written(now, asked, next)
			m.notify(next)
		}
		select {
		case <-tick.C:
		case <-m.wake:
		case <-lease.Lost():
			return kv.ErrLeaseLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write writes the record r, and returns the written content. If r is Ready, the transaction also compares the stored
// level with the newest level that this build reads. If the stored level is higher, write changes the state to Warming
// and writes the record again.
func (m *Member) write(ctx context.Context, lease *kv.Lease, r Record) (Record, error) {
	var bound kv.Bound
	if r.State == Ready {
		bound = kv.Bound{Path: LevelPath, Most: LevelValue(r.Level)}
	}
	_, err := lease.PutWhile(ctx, Folder+r.Name, r.Encode(), bound)
	above := errors.Is(err, kv.ErrConflict)
	if above || err == nil && r.State == Ready {
		m.mu.Lock()
		m.above, m.compared = above, true
		m.mu.Unlock()
	}
	if above {
		r.State = Warming
		_, err = lease.Put(ctx, Folder+r.Name, r.Encode())
	}
	return r, err
}

// Compared reports whether a write of a Ready record has compared the stored level with the newest level that this
// build reads (Above).
func (m *Member) Compared() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.compared
}

// Above returns an error while the stored level is above the newest level that this build reads. While there is an
// error, this replica must not serve. Each write of a Ready record compares the two levels, and the last comparison
// determines the result. Before the first comparison the result is nil. A write that fails before the comparison does
// not change the result.
func (m *Member) Above() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.above {
		return nil
	}
	return fmt.Errorf("the stored configuration has a level above %d, the newest that this build reads:"+
		" this replica serves once the leader has lowered the level", m.self.Level)
}

// notify closes the channel of LeavingRecorded after the first write of the state Leaving.
func (m *Member) notify(r Record) {
	if r.State != Leaving {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.leavingRecorded:
	default:
		close(m.leavingRecorded)
	}
}
