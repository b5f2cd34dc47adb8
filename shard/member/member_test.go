package member_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

var quiet = slog.New(slog.DiscardHandler)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

type replica struct {
	*member.Member
	streams  member.Streams
	revision atomic.Int64
	stop     func()
}

func start(t *testing.T, store *kv.Store, name string) *replica {
	t.Helper()
	r := &replica{}
	var err error
	r.Member, err = member.New(member.Config{Store: store, Name: name, Address: name + ":15010", Zone: "z", Version: "v", Lease: 3 * time.Second, Ramp: -1,
		Streams: &r.streams, Revision: r.revision.Load, Ring: func() *ring.Ring { return nil }, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	})
	r.stop = func() { cancel(); running.Wait() }
	t.Cleanup(r.stop)
	return r
}

// seen waits for a fleet.
func seen(t *testing.T, fleets <-chan member.Fleet, what string, want func(map[string]member.Record) bool) map[string]member.Record {
	t.Helper()
	ctx := within(t)
	for {
		select {
		case f := <-fleets:
			byName := map[string]member.Record{}
			for _, r := range f.Members {
				byName[r.Name] = r
			}
			if want(byName) {
				return byName
			}
		case <-ctx.Done():
			t.Fatalf("%s: did not come", what)
		}
	}
}

// A replica begins as warming, becomes ready on request, then leaves, and is gone after it stopped.
func TestLifeOfAMember(t *testing.T) {
	s := kvtest.Start(t)
	fleets, err := member.Follow(t.Context(), s.Store, quiet)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s.Store, "a")
	first := seen(t, fleets, "warming", func(f map[string]member.Record) bool { return f["a"].State == member.Warming })["a"]
	if first.Address != "a:15010" || first.Zone != "z" || first.Version != "v" || first.Incarnation == 0 || first.Weight != ring.FullWeight {
		t.Errorf("%+v", first)
	}
	r.streams.Join("ns", "app")
	r.revision.Store(42)
	r.Ready()
	ready := seen(t, fleets, "ready", func(f map[string]member.Record) bool { return f["a"].State == member.Ready })["a"]
	if ready.Revision != 42 || ready.Load.Streams() != 1 {
		t.Errorf("%+v", ready)
	}
	select {
	case <-r.LeavingRecorded():
		t.Error("told before it leaves")
	default:
	}
	r.Leave()
	r.Ready() // too late
	<-r.LeavingRecorded()
	seen(t, fleets, "leaving", func(f map[string]member.Record) bool { return f["a"].State == member.Leaving })
	r.stop()
	seen(t, fleets, "gone", func(f map[string]member.Record) bool { return len(f) == 0 })
}

// A lost lease is acquired again; a process that is cut off from etcd is gone when its lease ends.
func TestLeases(t *testing.T) {
	s := kvtest.Start(t)
	fleets, err := member.Follow(t.Context(), s.Store, quiet)
	if err != nil {
		t.Fatal(err)
	}
	start(t, s.Store, "a")
	cut := s.Connect()
	start(t, cut, "b")
	both := func(f map[string]member.Record) bool { return len(f) == 2 }
	before := seen(t, fleets, "two replicas", both)
	leases, err := s.Client().Leases(within(t))
	if err != nil || len(leases.Leases) != 2 {
		t.Fatalf("%+v, %v", leases, err)
	}
	for _, lease := range leases.Leases { // another process revokes the leases
		if _, err := s.Client().Revoke(within(t), clientv3.LeaseID(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	seen(t, fleets, "somebody is gone", func(f map[string]member.Record) bool { return len(f) < 2 })
	after := seen(t, fleets, "both again", both)
	if after["a"].Incarnation != before["a"].Incarnation {
		t.Error("a new lease is not a new process")
	}
	if err := cut.Client().Close(); err != nil {
		t.Fatal(err)
	}
	seen(t, fleets, "b crashed", func(f map[string]member.Record) bool { return len(f) == 1 && f["a"].Name == "a" })
}

// failures counts the warnings of a Member: etcd does not accept its record.
type failures struct {
	slog.Handler
	count atomic.Int64
}

func (f *failures) Enabled(context.Context, slog.Level) bool { return true }

func (f *failures) Handle(context.Context, slog.Record) error { f.count.Add(1); return nil }

// A replica that cannot read the fleet's level stays refused while etcd is away.
func TestAboveOutlastsEtcd(t *testing.T) {
	s := kvtest.Start(t)
	s.Put(member.LevelPath, string(member.LevelValue(2)))
	failed := &failures{Handler: slog.DiscardHandler}
	m, err := member.New(member.Config{Store: s.Connect(), Name: "a", Level: 1, Lease: time.Second, Ramp: -1, Streams: &member.Streams{},
		Revision: func() int64 { return 0 }, Ring: func() *ring.Ring { return nil }, Log: slog.New(failed)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	defer running.Wait()
	defer cancel()
	m.Ready()
	for deadline := within(t); !m.Compared(); time.Sleep(5 * time.Millisecond) {
		if deadline.Err() != nil {
			t.Fatal("the levels were not compared")
		}
	}
	s.Stop()
	m.Leave() // is written at once
	for deadline := within(t); failed.count.Load() < 1; time.Sleep(5 * time.Millisecond) {
		if deadline.Err() != nil {
			t.Fatal("no write has failed")
		}
	}
	if m.Above() == nil {
		t.Error("it serves what it cannot read")
	}
}

func TestConfig(t *testing.T) {
	s := kvtest.Start(t)
	good := member.Config{Store: s.Store, Name: "a", Streams: &member.Streams{}, Revision: func() int64 { return 0 }, Ring: func() *ring.Ring { return nil }}
	if _, err := member.New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*member.Config){
		"no store": func(c *member.Config) { c.Store = nil }, "slash": func(c *member.Config) { c.Name = "a/b" }, "no name": func(c *member.Config) { c.Name = "" },
		"weight": func(c *member.Config) { c.Weight = 101 }, "lease": func(c *member.Config) { c.Lease = time.Millisecond }, "no revision": func(c *member.Config) { c.Revision = nil },
	} {
		bad := good
		change(&bad)
		if _, err := member.New(bad); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}
