//go:build !race

package place

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
)

// leave ends a replica in good order, or not.
func (f *fleet) leave(orderly bool, names ...string) {
	for _, name := range names {
		if r := f.members[name]; orderly {
			r.State = member.Leaving
			f.members[name] = r
		} else {
			delete(f.members, name)
		}
	}
	f.pass(3)
	for _, name := range names {
		delete(f.members, name)
	}
}

// shards counts the shards of a replica.
func (f *fleet) shards(name string) (n int) {
	for s := range ring.Shards {
		if m, _ := f.ring.Holder(s); m.Name == name {
			n++
		}
	}
	return n
}

// Fault 14: the fleet is scaled out and in again without end. Each step moves its share at most, the first scale-out
// all of it at once; the moves die away, however the replica goes and whatever its name is. One that then stays has its
// share within minutes, and after a quiet time nothing is remembered.
func TestFlappingScale(t *testing.T) {
	const n, rounds, share = 5, 10, ring.Shards / 6
	for name, c := range map[string]struct {
		half           int // seconds that it is there, and that it is away
		orderly, fresh bool
	}{
		"orderly, other names": {30, true, true}, "orderly, one name": {30, true, false},
		"crashes, other names": {30, false, true}, "crashes, one name": {30, false, false},
		"slowly": {60, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, "a", "b", "c", "d", "e")
			f.pass(10)
			serve := func() { f.serve(func(i int) int { return 1 + i%9 }) }
			serve()
			f.pass(60)
			var out, in [rounds]int
			step := func(moved *int) {
				if *moved = f.moved; *moved > ring.Shards*12/10/n {
					t.Errorf("%d shards moved in one step", *moved)
				}
				f.moved = 0
				serve()
			}
			f.moved = 0
			for round := range rounds {
				name := "x"
				if c.fresh {
					name = fmt.Sprintf("x-%d", round)
				}
				f.join(name)
				f.pass(c.half)
				step(&out[round])
				f.leave(c.orderly, name)
				f.pass(c.half - 3)
				step(&in[round])
			}
			if out[0] < share*8/10 {
				t.Errorf("the first one was given %d shards, its share is %d", out[0], share)
			}
			all := 0
			for round := range rounds {
				all += out[round] + in[round]
				if most := max(out[round], in[round]); round >= rounds/2 && most > share/5 {
					t.Errorf("round %d still moves %d shards", round, most)
				}
			}
			if all > 8*share {
				t.Errorf("shards moved out %v, in %v", out, in)
			}
			f.forgives(t, share, serve)
		})
	}
}

// forgives checks that one which stays has its share within minutes, and one that comes after a quiet time at once.
func (f *fleet) forgives(t *testing.T, share int, serve func()) {
	t.Helper()
	f.join("y")
	f.pass(7 * 60)
	serve()
	f.pass(2 * 60)
	if got := f.shards("y"); got < share*8/10 {
		t.Errorf("one that stays has %d shards, its share is %d", got, share)
	}
	f.pass(10 * 60)
	f.join("z")
	f.pass(10)
	if got := f.shards("z"); got < ring.Shards/7*8/10 {
		t.Errorf("one that comes after a quiet time has %d shards", got)
	}
}

// Changes without flapping are not damped: several steps of an autoscaler, an upgrade of all replicas, leases lost for
// a moment.
func TestNotDamped(t *testing.T) {
	full := func(t *testing.T, f *fleet) {
		t.Helper()
		for _, m := range f.ring.Members() {
			if m.Weight != ring.FullWeight {
				t.Errorf("%s is damped: %d", m.Name, m.Weight)
			}
		}
	}
	t.Run("autoscaler", func(t *testing.T) {
		f := newFleet(t, "a", "b", "c")
		f.pass(10)
		for _, name := range []string{"d", "e", "f", "g"} {
			f.join(name)
			f.pass(20)
			full(t, f)
		}
		f.leave(true, "e", "f", "g")
		f.pass(60)
		f.join("h")
		f.pass(10)
		f.expect("in again", "a", "b", "c", "d", "h")
		full(t, f)
	})
	t.Run("upgrade", func(t *testing.T) {
		f := newFleet(t, "a-0", "b-0", "c-0", "d-0", "e-0")
		f.pass(15 * 60)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			f.join(name + "-1")
			f.pass(20)
			full(t, f)
			f.leave(true, name+"-0")
			f.pass(20)
		}
		f.expect("upgraded", "a-1", "b-1", "c-1", "d-1", "e-1")
	})
	t.Run("leases", func(t *testing.T) {
		f := newFleet(t, "a", "b", "c")
		f.pass(10)
		for range 4 {
			saved := maps.Clone(f.members)
			delete(f.members, "a")
			delete(f.members, "b")
			f.pass(5)
			f.members = saved
			f.pass(60)
		}
		f.join("d")
		f.pass(10)
		f.expect("one more", "a", "b", "c", "d")
		full(t, f)
	})
}

// Damped replicas leave the others at most twice their share: an upgrade that is reverted at once, and a fleet most of
// whose replicas are new each time.
func TestDampedFleetIsShared(t *testing.T) {
	worst := func(t *testing.T, f *fleet) {
		t.Helper()
		sum := 0
		for _, m := range f.ring.Members() {
			sum += int(m.Weight)
		}
		for _, m := range f.ring.Members() {
			if int(m.Weight)*len(f.ring.Members()) > 2*sum {
				t.Errorf("%s has %d of %d among %d", m.Name, m.Weight, sum, len(f.ring.Members()))
			}
		}
	}
	t.Run("taken back", func(t *testing.T) {
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		f := newFleet(t)
		for _, name := range names {
			f.join(name + "-0")
		}
		f.pass(15 * 60)
		for generation := range 3 {
			for _, name := range names {
				f.leave(true, fmt.Sprintf("%s-%d", name, generation))
				f.join(fmt.Sprintf("%s-%d", name, generation+1))
				f.pass(30)
				if len(f.inRing()) != len(names) {
					t.Fatalf("%v", f.inRing())
				}
				worst(t, f)
			}
		}
		f.pass(7 * 60)
		for _, m := range f.ring.Members() {
			if m.Weight != ring.FullWeight {
				t.Errorf("%s still is damped: %d", m.Name, m.Weight)
			}
		}
	})
	t.Run("most come and go", func(t *testing.T) {
		f := newFleet(t, "a", "b")
		f.pass(10)
		for round := range 10 {
			fresh := []string{fmt.Sprint("x-", round), fmt.Sprint("y-", round), fmt.Sprint("z-", round)}
			for _, name := range fresh {
				f.join(name)
			}
			f.pass(30)
			worst(t, f)
			if got := f.inRing(); len(got) != 5 || !slices.Contains(got, fresh[0]) {
				t.Fatalf("%v", got)
			}
			f.leave(true, fresh...)
			f.pass(30)
		}
	})
}
