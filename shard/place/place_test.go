package place

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

var quiet = slog.New(slog.DiscardHandler)

// node is one replica: its record, its view of the ring.
type node struct {
	*member.Member
	*Replica
	streams member.Streams
	store   *kv.Store
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// background runs until the test ends, or stop is called.
func background(t *testing.T, run func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var err error
	running.Go(func() { err = run(ctx) })
	stop = func() error { cancel(); running.Wait(); return err }
	t.Cleanup(func() { _ = stop() })
	return stop
}

func startNode(t *testing.T, store *kv.Store, name string) *node {
	t.Helper()
	n := &node{store: store}
	var err error
	if n.Replica, err = NewReplica(ReplicaConfig{Store: store, Self: name, Log: quiet}); err != nil {
		t.Fatal(err)
	}
	n.Member, err = member.New(member.Config{Store: store, Name: name, Address: name + ":15010", Lease: 3 * time.Second, Ramp: -1, Streams: &n.streams,
		Revision: func() int64 { return 1 }, Ring: n.Ring, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	background(t, n.Replica.Run)
	background(t, n.Member.Run)
	n.Ready()
	return n
}

// eventually waits for a placement, by its own notification.
func (n *node) eventually(t *testing.T, what string, want func(*Placement) bool) *Placement {
	t.Helper()
	ctx := within(t)
	for {
		p := n.Placement()
		if want(p) {
			return p
		}
		select {
		case <-p.Superseded():
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, p)
		}
	}
}

func of(n int) func(*Placement) bool {
	return func(p *Placement) bool { return len(p.Ring().Members()) == n && len(p.fleet) == n }
}

// Replicas get a ring from the leader and agree on it; one that crashes loses its shards when its lease ends, one that
// leaves before it is gone; streams that are elsewhere are counted.
func TestPlacement(t *testing.T) {
	s := kvtest.Start(t)
	a, b, c := startNode(t, s.Connect(), "a"), startNode(t, s.Connect(), "b"), startNode(t, s.Connect(), "c")
	if _, self := a.Placement().Owner("x", "y"); self || a.Placement().InRing() {
		t.Error("without a ring somebody owns something")
	}
	epoch := s.Elect("leader")
	background(t, func(ctx context.Context) error { return Lead(ctx, epoch, LeaderConfig{Store: s.Store, Log: quiet}) })
	nodes := []*node{a, b, c}
	at := map[string]int{}
	for _, n := range nodes {
		n.eventually(t, "three replicas", of(3))
	}
	for i := range 200 {
		namespace := fmt.Sprintf("ns-%d", i)
		owners, selves := map[string]bool{}, 0
		for _, n := range nodes {
			address, self := n.Placement().Owner(namespace, "app")
			if owners[address] = true; self {
				selves++
			}
			at[address]++
		}
		if len(owners) != 1 || selves != 1 {
			t.Fatalf("%s has owners %v, and %d say that it is theirs", namespace, owners, selves)
		}
		a.streams.Join(namespace, "app")
	}
	if len(at) != 3 || at["a:15010"] < 100 {
		t.Errorf("owners: %v", at)
	}
	if here := a.streams.Misplaced(a.Ring(), "a"); here != 200-at["a:15010"]/3 {
		t.Errorf("%d of 200 streams are misplaced, a owns %d", here, at["a:15010"]/3)
	}
	for ctx := within(t); a.LeaderAge(time.Now()) == 0 && ctx.Err() == nil; { // the leader is known by a watch of its own
		runtime.Gosched()
	}
	if a.LeaderAge(time.Now()) == 0 || a.Placement().Peers() != 2 || !a.Placement().InRing() {
		t.Errorf("leader for %v, %d peers", a.LeaderAge(time.Now()), a.Placement().Peers())
	}
	if err := b.store.Client().Close(); err != nil { // b crashes
		t.Fatal(err)
	}
	a.eventually(t, "b is gone", of(2))
	c.eventually(t, "b is gone", of(2))
	c.Leave()
	p := a.eventually(t, "c leaves", func(p *Placement) bool { return len(p.Ring().Members()) == 1 })
	for i := range 200 {
		if address, self := p.Owner(fmt.Sprintf("ns-%d", i), ""); !self || address != "a:15010" {
			t.Fatalf("ns-%d belongs to %q", i, address)
		}
	}
	<-c.LeavingRecorded()
	c.eventually(t, "c knows", func(p *Placement) bool { return !p.InRing() && p.Peers() == 1 })
}

// A warming replica knows the namespaces that it will own, and then owns them.
func TestExpected(t *testing.T) {
	f := newFleet(t, "a", "b")
	f.pass(10)
	f.serve(func(i int) int { return 1 + i%9 })
	f.pass(10)
	r, err := NewReplica(ReplicaConfig{Store: &kv.Store{}, Self: "c", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if r.Expected() != nil {
		t.Error("something is expected though nothing is known")
	}
	r.publish(f.ring, nil)
	r.count(slices.Collect(maps.Values(f.members)))
	expected := map[string]bool{}
	last := 10
	for _, namespace := range r.Expected() {
		expected[namespace] = true
		var i int
		if _, err := fmt.Sscanf(namespace, "ns-%d", &i); err != nil || 1+i%9 > last {
			t.Fatalf("%s is out of order", namespace)
		}
		last = 1 + i%9
	}
	f.join("c")
	f.pass(10)
	f.expect("c joined", "a", "b", "c")
	got := 0
	for i := range 1000 {
		namespace := fmt.Sprintf("ns-%d", i)
		if owns(f.ring, namespace, "", "c") {
			got++
			if !expected[namespace] {
				t.Errorf("%s was not expected", namespace)
			}
		}
	}
	if got < 250 || got != len(expected) {
		t.Errorf("%d namespaces were expected, %d came", len(expected), got)
	}
}

// An owner that is gone does not count as owner, until the leader has reassigned its shards.
func TestOwnerThatIsAway(t *testing.T) {
	r := ring.Assign(nil, []ring.Member{{Name: "b", Address: "b:1", Weight: 1}}, ring.Load{})
	p := &Placement{ring: r, self: "a", fleet: map[string]seat{"a": {"a:1", true, "v1"}}}
	if address, self := p.Owner("x", ""); address != "" || self {
		t.Errorf("a replica that is away owns: %q", address)
	}
	p.fleet["b"] = seat{"b:2", false, "v1"}
	if address, _ := p.Owner("x", ""); address != "" {
		t.Errorf("one that is not ready owns: %q", address)
	}
	p.fleet["b"] = seat{"b:2", true, "v1"}
	if address, self := p.Owner("x", ""); address != "b:2" || self {
		t.Errorf("owner %q, self %t", address, self)
	}
	p.self = "b"
	if address, self := p.Owner("x", ""); address != "b:2" || !self {
		t.Errorf("owner %q, self %t", address, self)
	}
}

// While replicas are of two versions no proxy is sent to the other one, but by a replica that leaves.
func TestOwnerOfAnotherVersion(t *testing.T) {
	r := ring.Assign(nil, []ring.Member{{Name: "b", Address: "b:1", Weight: 1}}, ring.Load{})
	for name, c := range map[string]struct {
		here, there seat
		want        string
	}{
		"one version":              {seat{"a:1", true, "v1"}, seat{"b:1", true, "v1"}, "b:1"},
		"two":                      {seat{"a:1", true, "v1"}, seat{"b:1", true, "v2"}, ""},
		"two, and this one leaves": {seat{"a:1", false, "v1"}, seat{"b:1", true, "v2"}, "b:1"},
	} {
		p := &Placement{ring: r, self: "a", fleet: map[string]seat{"a": c.here, "b": c.there}}
		if address, self := p.Owner("x", ""); address != c.want || self {
			t.Errorf("%s: owner %q, self %t", name, address, self)
		}
	}
	var n Replica
	for versions, mixed := range map[string]bool{"v": false, "vv": false, "vw": true, "vwv": true} {
		var fleet []member.Record
		for _, version := range versions {
			fleet = append(fleet, member.Record{State: member.Ready, Weight: 1, Version: string(version)})
		}
		n.count(append(fleet, member.Record{State: member.Leaving, Weight: 1, Version: "x"}))
		if n.Numbers().Mixed != mixed {
			t.Errorf("versions %s: mixed %t", versions, !mixed)
		}
	}
}

// A leader that was paused and replaced writes no ring, though it believes that it leads and sees the fleet change.
func TestPausedLeaderWritesNothing(t *testing.T) {
	s := kvtest.Start(t)
	n := startNode(t, s.Connect(), "a")
	old := s.Elect("old")
	var wrote []uint64
	first := make(chan struct{}, 10)
	run := background(t, func(ctx context.Context) error {
		return Lead(ctx, old, LeaderConfig{Store: s.Store, Log: quiet, Wrote: func(next *ring.Ring, _ int) {
			wrote = append(wrote, next.Version())
			first <- struct{}{}
		}})
	})
	<-first
	n.eventually(t, "the first ring", of(1))
	// It is replaced; the fleet changes, and it tries to write its own ring.
	s.Depose(old)
	deposed := make(chan error, 1)
	go func() { deposed <- errorOf(t.Context(), s, old) }()
	startNode(t, s.Connect(), "b")
	n.eventually(t, "b is there", func(p *Placement) bool { return len(p.fleet) == 2 })
	if err := <-deposed; !errors.Is(err, kv.ErrDeposed) {
		t.Errorf("the old leader went on: %v", err)
	}
	if len(n.Ring().Members()) != 1 {
		t.Errorf("the old leader wrote %v", n.Ring().Members())
	}
	young := s.Elect("young")
	background(t, func(ctx context.Context) error { return Lead(ctx, young, LeaderConfig{Store: s.Store, Log: quiet}) })
	if p := n.eventually(t, "the young leader's ring", of(2)); p.Ring().Version() != 2 {
		t.Errorf("version %d", p.Ring().Version())
	}
	if err := run(); !errors.Is(err, kv.ErrDeposed) {
		t.Errorf("the old leader ended with %v", err)
	}
	if len(wrote) != 1 {
		t.Errorf("the old leader wrote rings %v", wrote)
	}
}

// errorOf leads with an epoch until Lead returns an error, and returns it.
func errorOf(ctx context.Context, s *kvtest.Server, epoch kv.Epoch) error {
	return Lead(ctx, epoch, LeaderConfig{Store: s.Store, Log: quiet})
}

// An invalid value of the ring leaves readers with the last valid ring, and the leader replaces it.
func TestBrokenRing(t *testing.T) {
	s := kvtest.Start(t)
	n := startNode(t, s.Connect(), "a")
	epoch := s.Elect("leader")
	stop := background(t, func(ctx context.Context) error { return Lead(ctx, epoch, LeaderConfig{Store: s.Store, Log: quiet}) })
	good := n.eventually(t, "a ring", of(1)).Ring()
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.Put(ringPath, "no ring")
	startNode(t, s.Connect(), "b")
	p := n.eventually(t, "b is there", func(p *Placement) bool { return len(p.fleet) == 2 })
	if !sameRing(p.Ring(), good) {
		t.Errorf("a broken ring took the place of the last good one: %v", p)
	}
	background(t, func(ctx context.Context) error { return Lead(ctx, epoch, LeaderConfig{Store: s.Store, Log: quiet}) })
	n.eventually(t, "another ring", of(2))
}
