package place

import (
	"context"
	"slices"
	"testing"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv/kvtest"
)

// When all replicas have left in order, the ring records it, and the next replica owns everything at once, under any
// leader. A crashed replica is waited for, as before.
func TestAllLeave(t *testing.T) {
	leave := func(f *fleet, name string) {
		r := f.members[name]
		r.State = member.Leaving
		f.members[name] = r
	}
	f := newFleet(t, "a", "b")
	f.pass(10)
	f.expect("both", "a", "b")
	leave(f, "a")
	f.pass(3)
	f.expect("a leaves", "b")
	leave(f, "b")
	if f.pass(1); len(f.ring.Members()) != 0 || f.ring.Version() == 0 {
		t.Errorf("all left: %v", f.inRing())
	}
	clear(f.members)
	if n := f.pass(60); n != 0 {
		t.Errorf("%d rings of nobody", n)
	}
	stored, err := ring.Decode(f.ring.Encode())
	if err != nil {
		t.Fatal(err)
	}
	f.assigner, f.ring = assigner{}, stored // another leader
	f.join("c")
	if f.pass(1); !slices.Equal(f.inRing(), []string{"c"}) {
		t.Errorf("who came first is not in the ring at once: %v", f.inRing())
	}

	f = newFleet(t, "a", "b")
	f.pass(10)
	leave(f, "a")
	delete(f.members, "b")
	if f.pass(1); len(f.ring.Members()) == 0 {
		t.Error("b crashed and a left: the ring was given up")
	}
}

// A process that has just started its etcd replaces a killed one at once: its record, whose lease has an hour left, and
// its shards. A replica that joins later gets its share.
func TestAloneAtFirst(t *testing.T) {
	s := kvtest.Start(t)
	killed := startNode(t, s.Connect(), "killed")
	old := s.Elect("old")
	stop := background(t, func(ctx context.Context) error { return Lead(ctx, old, LeaderConfig{Store: s.Store, Log: quiet}) })
	killed.eventually(t, "the ring of the first process", of(1))
	_ = stop()
	s.Depose(old)
	next := startNode(t, s.Connect(), "next")
	epoch := s.Elect("next")
	background(t, func(ctx context.Context) error {
		return Lead(ctx, epoch, LeaderConfig{Store: s.Store, Log: quiet, Alone: "next"})
	})
	p := next.eventually(t, "the ring is the new process's alone", func(p *Placement) bool {
		return p.InRing() && len(p.Ring().Members()) == 1 && len(p.fleet) == 1
	})
	if v := p.Ring().Version(); v != 2 {
		t.Errorf("it is ring %d: one of both was made before", v)
	}
	startNode(t, s.Connect(), "later").eventually(t, "a ring of both", of(2))
}
