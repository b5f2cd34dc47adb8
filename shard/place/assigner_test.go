package place

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
)

// fleet is a simulated fleet and its leader: seconds pass by tick.
type fleet struct {
	t        *testing.T
	now      time.Time
	members  map[string]member.Record
	assigner assigner
	ring     *ring.Ring
	writes   int
	moved    int
}

func newFleet(t *testing.T, names ...string) *fleet {
	f := &fleet{t: t, now: time.Unix(1e6, 0), members: map[string]member.Record{}}
	for _, name := range names {
		f.join(name)
	}
	return f
}

func (f *fleet) join(name string) {
	r := member.Record{Name: name, Address: name + ":1", State: member.Ready, Weight: ring.FullWeight, Incarnation: uint64(f.now.UnixNano())}
	f.members[name] = r
}

// serve spreads a load over the members by the ring.
func (f *fleet) serve(streams func(namespace int) int) {
	for name, r := range f.members {
		r.Load = ring.Load{Namespaces: map[string]ring.NamespaceLoad{}}
		for i := range 1000 {
			namespace := fmt.Sprintf("ns-%d", i)
			if owner, ok := ring.Owner(f.ring, namespace, ""); ok && owner.Name == name {
				r.Load.Namespaces[namespace] = ring.NamespaceLoad{Streams: streams(i)}
			}
		}
		f.members[name] = r
	}
}

// pass advances the clock by seconds; the leader decides each second, and the result is the number of rings that it
// wrote.
func (f *fleet) pass(seconds int) int {
	f.t.Helper()
	before := f.writes
	for range seconds {
		f.now = f.now.Add(time.Second)
		next, wake := f.assigner.step(f.now, slices.Collect(maps.Values(f.members)), f.ring)
		if !wake.After(f.now) && next == f.ring {
			f.t.Fatalf("wakes at once, and does nothing: %v", wake)
		}
		if next != f.ring {
			f.moved += ring.Moved(f.ring, next)
			f.ring = next
			f.writes++
			f.assigner.written(f.now)
		}
	}
	return f.writes - before
}

func (f *fleet) inRing() []string {
	var names []string
	for _, m := range f.ring.Members() {
		names = append(names, m.Name)
	}
	return names
}

func (f *fleet) expect(what string, names ...string) {
	f.t.Helper()
	if got := f.inRing(); !slices.Equal(got, names) {
		f.t.Errorf("%s: the ring has %v, want %v", what, got, names)
	}
	for s := range ring.Shards {
		if _, ok := f.ring.Holder(s); !ok && len(names) > 0 {
			f.t.Fatalf("%s: shard %d has no owner", what, s)
		}
	}
}

// The first get the ring at once, others when they were ready for a while; warming ones not; addresses and weights
// follow.
func TestJoin(t *testing.T) {
	f := newFleet(t)
	f.pass(5)
	f.expect("nobody")
	f.join("a")
	f.pass(1)
	f.expect("the first", "a")
	f.join("b")
	warming := f.members["b"]
	warming.Name, warming.State = "c", member.Warming
	f.members["c"] = warming
	if f.pass(2); len(f.inRing()) != 1 {
		t.Error("b joined at once")
	}
	f.pass(3)
	f.expect("the second", "a", "b")
	if n := f.pass(30); n != 0 {
		t.Errorf("nothing happened, and %d rings were written", n)
	}
	warming.State, warming.Weight = member.Ready, 25
	f.members["c"] = warming
	f.pass(6)
	f.expect("the third", "a", "b", "c")
	before := f.moved
	for _, weight := range []uint32{50, 75, 100} {
		warming.Weight, warming.Address = weight, fmt.Sprint("c:", weight)
		f.members["c"] = warming
		if n := f.pass(5); n != 1 {
			t.Errorf("weight %d: %d rings", weight, n)
		}
		if m, _ := f.ring.Member("c"); m != warming.Member() {
			t.Errorf("%+v", m)
		}
	}
	if moved := f.moved - before; moved < 45 || moved > 75 { // from 28 shards to 85
		t.Errorf("ramping up moved %d shards", moved)
	}
}

// A replica that leaves or crashes is replaced at once, by load: the shards that it served are remembered until they
// are served again.
func TestGoing(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		f := newFleet(t, "a", "b", "c", "d")
		f.pass(10)
		f.serve(func(i int) int { return 1 + max(i%15-13, 0)*40 }) // a few large ones
		f.pass(200)
		before := f.ring
		full := ring.Load{}
		for _, r := range f.members {
			full.Add(r.Load)
		}
		if leaves {
			r := f.members["b"]
			r.State = member.Leaving
			f.members["b"] = r
		} else {
			delete(f.members, "b")
		}
		f.pass(1)
		f.expect("b went", "a", "c", "d")
		if f.ring.Imbalance(full) > ring.Bound {
			t.Errorf("leaves %t: the load of b was forgotten: imbalance %.2f", leaves, f.ring.Imbalance(full))
		}
		for s := range ring.Shards {
			x, _ := before.Holder(s)
			if y, _ := f.ring.Holder(s); x.Name != "b" && x != y {
				t.Fatalf("leaves %t: shard %d moved from %s to %s", leaves, s, x.Name, y.Name)
			}
		}
		delete(f.members, "b")
		if n := f.pass(120); n != 0 {
			t.Errorf("leaves %t: %d more rings", leaves, n)
		}
	}
}

// More than half of the replicas seem to be gone at once: probably etcd lost the leases. The ring stays for a while.
func TestManyGone(t *testing.T) {
	f := newFleet(t, "a", "b", "c")
	f.pass(10)
	saved := maps.Clone(f.members)
	delete(f.members, "a")
	delete(f.members, "b")
	if n := f.pass(10); n != 0 {
		t.Errorf("%d rings while two of three are away", n)
	}
	f.members = saved
	if n := f.pass(30); n != 0 {
		t.Errorf("%d rings when they came back", n)
	}
	f.expect("they came back", "a", "b", "c")
	f.members = map[string]member.Record{}
	if n := f.pass(100); n != 0 {
		t.Errorf("%d rings with nobody there", n)
	}
	f = newFleet(t, "a", "b", "c")
	f.pass(10)
	delete(f.members, "a")
	delete(f.members, "b")
	f.pass(20)
	f.expect("they did not come back", "c")
}

// A replica that appears and disappears each minute is left out after a few times; once it stays, it is added again.
func TestFlappingReplica(t *testing.T) {
	f := newFleet(t, "a", "b", "c", "d")
	f.pass(10)
	perRound := []int{}
	for range 10 {
		delete(f.members, "d")
		n := f.pass(30)
		f.join("d")
		perRound = append(perRound, n+f.pass(30))
	}
	late := 0
	for _, n := range perRound[5:] {
		late += n
	}
	if late != 0 || perRound[0] != 2 {
		t.Errorf("rings in each of ten minutes: %v", perRound)
	}
	if f.moved > ring.Shards+10*ring.Shards/4*6/5 {
		t.Errorf("%d shards moved", f.moved)
	}
	f.pass(300)
	f.expect("it stays", "a", "b", "c", "d")
	f.pass(660)
	delete(f.members, "d")
	f.pass(5)
	f.join("d")
	f.pass(8)
	f.expect("it is forgiven", "a", "b", "c", "d")
}

// A process that restarts within its lease served nothing meanwhile: it is out, and back when it was ready for a while.
func TestRestart(t *testing.T) {
	f := newFleet(t, "a", "b")
	f.pass(10)
	r := f.members["b"]
	r.Incarnation, r.State = 1, member.Warming
	f.members["b"] = r
	f.pass(1)
	f.expect("b restarts", "a")
	r.State = member.Ready
	f.members["b"] = r
	f.pass(4)
	f.expect("b is ready", "a")
	f.pass(10)
	f.expect("b is ready for longer", "a", "b")
}

// A load that is uneven moves shards when it has lasted for a minute, once, and not when it has not.
func TestUnevenLoad(t *testing.T) {
	f := newFleet(t, "a", "b", "c")
	f.pass(10)
	even := func(int) int { return 10 }
	f.serve(even)
	f.pass(10)
	hot := map[int]bool{}
	for i := range 1000 {
		if m, _ := ring.Owner(f.ring, fmt.Sprintf("ns-%d", i), ""); m.Name == "a" {
			hot[i] = true
		}
	}
	uneven := func(i int) int {
		if hot[i] {
			return 22
		}
		return 10
	}
	for range 5 { // to and fro
		f.serve(uneven)
		n := f.pass(40)
		f.serve(even)
		if n += f.pass(20); n != 0 {
			t.Fatalf("%d rings for a load that did not last", n)
		}
	}
	f.serve(uneven)
	if n := f.pass(200); n != 1 {
		t.Errorf("%d rings for a load that lasted, want 1", n)
	}
	load := ring.Load{}
	for _, r := range f.members {
		load.Add(r.Load)
	}
	if got := f.ring.Imbalance(load); got > ring.Bound {
		t.Errorf("imbalance %.2f", got)
	}
	// The next leader finds nothing to do.
	f.assigner = assigner{}
	if n := f.pass(300); n != 0 {
		t.Errorf("the next leader wrote %d rings", n)
	}
}

// The fleet is scaled out and in each minute, always by another replica that ramps up: each step moves its share only.
func TestScaleOutAndIn(t *testing.T) {
	f := newFleet(t, "a", "b", "c", "d", "e")
	f.pass(10)
	f.serve(func(i int) int { return 1 + i%9 })
	for round := range 10 {
		name := fmt.Sprintf("x-%d", round)
		f.join(name)
		f.moved = 0
		for _, weight := range []uint32{25, 50, 75, 100} {
			r := f.members[name]
			r.Weight = weight
			f.members[name] = r
			f.pass(15)
			f.serve(func(i int) int { return 1 + i%9 })
		}
		out := f.moved
		if len(f.inRing()) != 6 {
			t.Fatalf("round %d: %v", round, f.inRing())
		}
		r := f.members[name]
		r.State = member.Leaving
		f.members[name] = r
		f.moved = 0
		f.pass(5)
		delete(f.members, name)
		f.serve(func(i int) int { return 1 + i%9 })
		f.pass(55)
		if limit := ring.Shards * 12 / 10 / 5; out > limit || f.moved > limit {
			t.Errorf("round %d: %d shards moved out, %d in, at most %d", round, out, f.moved, limit)
		}
	}
}

// A replica that joins while the load is uneven gets its shards in time: the leader schedules its next decision, and
// needs no change of the fleet for it.
func TestWakesToLetJoin(t *testing.T) {
	f := newFleet(t, "a", "b")
	f.pass(10)
	f.serve(func(i int) int { return 1 + max(i%15-13, 0)*400 })
	hot := f.members["a"]
	hot.Load.Rest = 1 << 20
	hot.Load.Namespaces["hot"] = ring.NamespaceLoad{Streams: 1 << 20}
	f.members["a"] = hot
	f.pass(5)
	f.join("c")
	f.now = f.now.Add(time.Second)
	began := f.now
	for f.now.Sub(began) < time.Minute {
		next, wake := f.assigner.step(f.now, slices.Collect(maps.Values(f.members)), f.ring)
		if next != f.ring {
			break
		}
		f.now = wake
	}
	if took := f.now.Sub(began); took > joinAfter {
		t.Errorf("it joined after %v", took)
	}
}
