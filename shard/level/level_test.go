package level

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

var quiet = slog.New(slog.DiscardHandler)

func TestOf(t *testing.T) {
	reads := func(levels ...uint32) (fleet []member.Record) {
		for _, l := range levels {
			fleet = append(fleet, member.Record{Level: l})
		}
		return fleet
	}
	for name, c := range map[string]struct {
		leader uint32
		fleet  []member.Record
		want   uint32
	}{
		"nobody serves":         {2, nil, 2},
		"all read it":           {2, reads(2, 3), 2},
		"one does not":          {3, reads(3, 1, 2), 1},
		"the leader is the old": {1, reads(2, 2), 1},
	} {
		if got := Lowest(c.leader, c.fleet); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestFirst(t *testing.T) {
	for stored, want := range map[uint32]Use{0: {1, false}, 1: {1, false}, 2: {2, false}, 3: {2, true}} {
		if got := (Current{Level: stored}).First(2); got != want {
			t.Errorf("stored %d: %+v, want %+v", stored, got, want)
		}
	}
}

// join starts a replica that reads a level.
func join(t *testing.T, store *kv.Store, name string, reads uint32) (m *member.Member, leave func()) {
	t.Helper()
	var streams member.Streams
	m, err := member.New(member.Config{Store: store, Name: name, Level: reads, Lease: 3 * time.Second, Ramp: -1, Streams: &streams,
		Revision: func() int64 { return 1 }, Ring: func() *ring.Ring { return nil }, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	leave = func() { cancel(); running.Wait() }
	t.Cleanup(leave)
	m.Ready()
	return m, leave
}

// eventually waits for the effect of another loop in etcd.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not come", what)
		}
	}
}

// The level rises when all replicas read the next one. A replica that reads less is not ready before the records of the
// higher level are removed from the store. The level rises again when that replica has left.
func TestLevelFollowsTheFleet(t *testing.T) {
	s := kvtest.Start(t)
	var using atomic.Uint32
	var written atomic.Bool // stored records are changed to a level at once
	written.Store(true)
	cfg := Config{Store: s.Store, Reads: 2, Log: quiet, Use: func(u Use) { using.Store(u.Level) }, Used: func() uint32 {
		if !written.Load() {
			return 0
		}
		return using.Load()
	}}
	stored := func() uint32 {
		c, err := Read(t.Context(), s.Store)
		if err != nil {
			t.Fatal(err)
		}
		return c.Level
	}
	_, leaveOld := join(t, s.Store, "a", 1)
	newer, _ := join(t, s.Store, "b", 2)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Lead(ctx, s.Elect("leader"), cfg) }()
	eventually(t, "the first level", func() bool { return stored() == 1 })
	leaveOld()
	eventually(t, "all read level 2", func() bool { return stored() == 2 && using.Load() == 2 })

	written.Store(false)
	old, leaveOld := join(t, s.Store, "a", 1)
	eventually(t, "the old one is refused", func() bool { return old.Above() != nil && using.Load() == 1 })
	if got := stored(); got != 2 {
		t.Errorf("the level is %d while what needs level 2 is still stored", got)
	}
	written.Store(true)
	eventually(t, "the old one is let in", func() bool { return old.Above() == nil && stored() == 1 })
	if err := newer.Above(); err != nil {
		t.Error(err)
	}
	leaveOld()
	eventually(t, "the old one has left", func() bool { return stored() == 2 && using.Load() == 2 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A replica that joins between the leader's read of the fleet and its write of the level is detected: the level is not
// raised.
func TestRaiseSeesWhoJoins(t *testing.T) {
	s := kvtest.Start(t)
	l := leader{epoch: s.Elect("leader"), Config: Config{Store: s.Store, Reads: 2, Log: quiet, Use: func(Use) {}, Used: func() uint32 { return 0 }}}
	_, revision, err := s.Store.Blobs(t.Context(), member.Folder, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.fleet.Revision = revision
	join(t, s.Store, "a", 1)
	eventually(t, "its record", func() bool {
		blobs, _, err := s.Store.Blobs(t.Context(), member.Folder, 0)
		return err == nil && len(blobs) == 1
	})
	if pending, err := l.step(t.Context()); err != nil || !pending {
		t.Errorf("pending %v, %v", pending, err)
	}
	if c, err := Read(t.Context(), s.Store); err != nil || c.Level != 0 {
		t.Errorf("%+v, %v: raised without the one that joined", c, err)
	}
	s.Depose(l.epoch)
	if _, err := l.step(t.Context()); !errors.Is(err, kv.ErrDeposed) {
		t.Errorf("deposed: %v", err)
	}
}
