package ring_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"navarch.io/navarch/shard/ring"
)

// randomFleet makes members and a load by seed.
type randomFleet struct{ *rand.Rand }

func newRandomFleet(seed int) randomFleet { return randomFleet{rand.New(rand.NewPCG(uint64(seed), 5))} }

func (w randomFleet) members(n int) []ring.Member {
	var members []ring.Member
	for i := range n {
		members = append(members, ring.Member{Name: fmt.Sprintf("navarchd-%x-%d", w.Uint32(), i), Address: fmt.Sprintf("10.0.0.%d:15010", i), Weight: ring.FullWeight})
	}
	return members
}

// even is many small namespaces; none is ever split.
func (w randomFleet) even() ring.Load {
	load := ring.Load{Namespaces: map[string]ring.NamespaceLoad{}}
	for i := range 4000 {
		load.Namespaces[fmt.Sprintf("ns-%d", i)] = ring.NamespaceLoad{Streams: 5}
	}
	return load
}

// zipf returns tenants whose sizes follow a Zipf distribution, in workloads of up to 40 Pods, about 20,000 streams.
func (w randomFleet) zipf() ring.Load {
	load := ring.Load{Namespaces: map[string]ring.NamespaceLoad{}}
	for i := range 200 {
		n := ring.NamespaceLoad{Streams: 3500 / (i + 1), Workloads: map[string]int{}}
		for rest, k := n.Streams, 0; rest > 0; k++ {
			pods := min(rest, 1+w.IntN(40))
			n.Workloads[fmt.Sprintf("app-%d", k)] = pods
			rest -= pods
		}
		load.Namespaces[fmt.Sprintf("tenant-%d", i)] = n
	}
	return load
}

func without(members []ring.Member, i int) []ring.Member {
	return slices.Delete(slices.Clone(members), i, i+1)
}

// moves is the part of the shards, and of the streams that keep their key, that has another owner.
func moves(a, b *ring.Ring, load ring.Load) (shards, streams float64) {
	total, moved := 0, 0
	for name, n := range load.Namespaces {
		if a.Split(name) != b.Split(name) {
			continue
		}
		parts := map[string]int{"": n.Streams}
		if a.Split(name) {
			parts = n.Workloads
		}
		for workload, count := range parts {
			x, _ := ring.Owner(a, name, workload)
			y, _ := ring.Owner(b, name, workload)
			if total += count; x.Name != y.Name {
				moved += count
			}
		}
	}
	return float64(ring.Moved(a, b)) / ring.Shards, float64(moved) / float64(max(total, 1))
}

// One replica more or less of n moves 1.05/n on average at most, and never more than 1/n and three standard deviations.
func TestMovesOfOneReplica(t *testing.T) {
	loads := map[string]func(randomFleet) ring.Load{"none": func(randomFleet) ring.Load { return ring.Load{} }, "even": randomFleet.even}
	for name, loadOf := range loads {
		for _, n := range []int{2, 3, 4, 5, 8, 10, 20} {
			p := 1 / float64(n)
			most := p + 3*math.Sqrt(p*(1-p)/ring.Shards)
			sum, count := map[string]float64{}, map[string]float64{}
			see := func(what string, a, b *ring.Ring, load ring.Load) {
				shards, streams := moves(a, b, load)
				if shards > most || streams > most+.01 { // streams of one shard more or less
					t.Errorf("%s, %s of %d: moved %.3f of the shards and %.3f of the streams, at most %.3f", name, what, n, shards, streams, most)
				}
				sum[what], sum[what+", streams"] = sum[what]+shards, sum[what+", streams"]+streams
				count[what], count[what+", streams"] = count[what]+1, count[what+", streams"]+1
			}
			for seed := range max(24/n, 4) {
				w := newRandomFleet(seed)
				load, members := loadOf(w), w.members(n+1)
				base := ring.Assign(nil, members[:n], load)
				more := ring.Assign(base, members, load)
				see("+1", base, more, load)
				share, before := float64(load.Streams())/float64(n+1), base.Streams(load)
				for who, streams := range more.Streams(load) { // a replica keeps its own share: a shard has about 80 streams
					if streams < share-220 && streams < before[who] {
						t.Errorf("%s, +1 of %d: %s is left with %.0f streams of a share of %.0f", name, n, who, streams, share)
					}
				}
				for i := range n {
					see("-1", base, ring.Assign(base, without(members[:n], i), load), load)
				}
			}
			for what := range sum {
				if mean := sum[what] / count[what]; mean > 1.05*p {
					t.Errorf("%s, %s of %d: moved %.4f on average, at most %.4f", name, what, n, mean, 1.05*p)
				}
			}
		}
	}
}

// No member has more than 1.25 of its share, unless one shard alone is too large; by weights.
func TestBoundedLoad(t *testing.T) {
	for seed := range 20 {
		w := newRandomFleet(seed)
		members := w.members(2 + w.IntN(12))
		for i := range members {
			members[i].Weight = uint32(25 * (1 + w.IntN(4)))
		}
		load := w.zipf()
		if seed%2 == 0 {
			load = w.even()
		}
		r := ring.Assign(nil, members, load)
		for step := range 10 { // the effect of changes is bounded too
			checkBound(t, fmt.Sprintf("seed %d, step %d", seed, step), r, load)
			r = ring.Assign(r, without(r.Members(), w.IntN(len(r.Members()))), load)
			r = ring.Assign(r, append(slices.Clone(r.Members()), w.members(1)...), load)
		}
	}
}

func checkBound(t *testing.T, when string, r *ring.Ring, load ring.Load) {
	t.Helper()
	weights, sum, total := 0., 0., float64(load.Streams())
	largest := map[int]float64{}
	for name, n := range load.Namespaces {
		if !r.Split(name) {
			largest[ring.ShardOf(r.Key(name, ""))] += float64(n.Streams)
			continue
		}
		for workload, streams := range n.Workloads {
			largest[ring.ShardOf(r.Key(name, workload))] += float64(streams)
		}
	}
	one := 0.
	for _, streams := range largest {
		one = max(one, streams)
	}
	for _, m := range r.Members() {
		weights += float64(m.Weight)
	}
	each := r.Streams(load)
	for _, m := range r.Members() {
		share := total * float64(m.Weight) / weights
		sum += each[m.Name]
		if each[m.Name] > max(ring.Bound*share, share+one)+1e-6 {
			t.Errorf("%s: %s of %d members has %.0f streams, its share is %.0f, the largest shard %.0f", when, m.Name, len(r.Members()), each[m.Name], share, one)
		}
	}
	if math.Abs(sum-total) > 1e-6*total {
		t.Errorf("%s: the members have %.1f streams together, there are %.1f", when, sum, total)
	}
}

// Only necessary moves happen: the owner is gone or had too much, or the receiver is new, grew, or had far too little.
func TestLeastMovement(t *testing.T) {
	for seed := range 40 {
		w := newRandomFleet(seed)
		load, members := w.zipf(), w.members(6)
		r := ring.Assign(nil, members, load)
		if again := ring.Assign(r, members, load); again != r {
			t.Fatalf("seed %d: nothing changed and %d shards moved", seed, ring.Moved(r, again))
		}
		// Loads that drift a little move nothing.
		drift := ring.Load{Namespaces: map[string]ring.NamespaceLoad{}}
		for name, n := range load.Namespaces {
			n.Streams += w.IntN(1 + n.Streams/50)
			drift.Namespaces[name] = n
		}
		if again := ring.Assign(r, members, drift); ring.Moved(r, again) != 0 {
			t.Errorf("seed %d: a drift by 2 %% moved %d shards", seed, ring.Moved(r, again))
		}
		// One that leaves moves its own shards only.
		less := ring.Assign(r, without(members, 0), load)
		for s := range ring.Shards {
			before, _ := r.Holder(s)
			after, _ := less.Holder(s)
			if before.Name != members[0].Name && before != after && r.Imbalance(load) < 1.2 && sameSplits(r, less) {
				t.Errorf("seed %d: shard %d moved from %s to %s, though neither changed", seed, s, before.Name, after.Name)
			}
		}
	}
}

func sameSplits(a, b *ring.Ring) bool { return slices.Equal(a.SplitNamespaces(), b.SplitNamespaces()) }

// A replica that leaves and returns moves its own share, and gets most of it back; shards of the other replicas stay.
func TestFlappingMember(t *testing.T) {
	for seed := range 20 {
		w := newRandomFleet(seed)
		load, members := w.even(), w.members(5)
		start := ring.Assign(nil, members, load)
		r := start
		for round := range 10 {
			gone := ring.Assign(r, without(members, 2), load)
			back := ring.Assign(gone, members, load)
			for s := range ring.Shards {
				a, _ := r.Holder(s)
				b, _ := gone.Holder(s)
				c, _ := back.Holder(s)
				if a.Name != members[2].Name && a.Name != b.Name || b.Name != c.Name && c.Name != members[2].Name {
					t.Fatalf("seed %d, round %d: shard %d went %s, %s, %s: the flapping one is %s", seed, round, s, a.Name, b.Name, c.Name, members[2].Name)
				}
			}
			if r = back; ring.Moved(start, r) > ring.Shards/5 {
				t.Fatalf("seed %d, round %d: %d shards are elsewhere", seed, round, ring.Moved(start, r))
			}
		}
	}
}

// The ring does not depend on the order of members or of maps, and every reader derives the same owners from it.
func TestDeterministic(t *testing.T) {
	for seed := range 10 {
		w := newRandomFleet(seed)
		load, members := w.zipf(), w.members(7)
		start := ring.Assign(nil, members[:6], load)
		want := ring.Assign(start, members, load)
		for range 5 {
			shuffled := slices.Clone(members)
			w.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			copied := ring.Load{Rest: load.Rest}
			var parts [3]ring.Load // as replicas report it
			for name, n := range load.Namespaces {
				for i := range parts {
					part := ring.NamespaceLoad{Workloads: map[string]int{}}
					for workload, streams := range n.Workloads {
						if int(workload[len(workload)-1])%3 == i {
							part.Workloads[workload], part.Streams = streams, part.Streams+streams
						}
					}
					parts[i].Add(ring.Load{Namespaces: map[string]ring.NamespaceLoad{name: part}})
				}
			}
			for _, part := range parts {
				copied.Add(part)
			}
			got := ring.Assign(start, append(shuffled, ring.Member{Name: "no weight"}), copied)
			if string(got.Encode()) != string(want.Encode()) {
				t.Fatalf("seed %d: another order gives another ring", seed)
			}
		}
		reader, err := ring.Decode(want.Encode())
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range load.Namespaces {
			for workload := range n.Workloads {
				a, _ := ring.Owner(want, name, workload)
				if b, ok := ring.Owner(reader, name, workload); !ok || a != b {
					t.Fatalf("%s/%s: %v here, %v there", name, workload, a, b)
				}
			}
		}
	}
}

// A namespace of more than an eighth of a fair share is split, its neighbours are not, and near the limit it stays.
func TestSplit(t *testing.T) {
	members := newRandomFleet(1).members(4)
	load := func(large int) ring.Load {
		l := newRandomFleet(1).even() // 20,000 streams: 5,000 a replica, 625 an eighth
		n := ring.NamespaceLoad{Streams: large, Workloads: map[string]int{}}
		for i := range 50 {
			n.Workloads[fmt.Sprintf("app-%d", i)] = large / 50
		}
		l.Namespaces["large"] = n
		return l
	}
	var r *ring.Ring
	for _, step := range []struct {
		streams int
		split   bool
	}{{600, false}, {1000, true}, {600, true}, {400, true}, {200, false}, {600, false}, {700, true}} {
		r = ring.Assign(r, members, load(step.streams))
		if r.Split("large") != step.split || r.Split("ns-1") {
			t.Errorf("%d streams: split %t, want %t; the others: %v", step.streams, r.Split("large"), step.split, r.SplitNamespaces())
		}
	}
	// Split, its workloads are spread; whole, it is in one place.
	owners := map[string]bool{}
	for i := range 50 {
		m, _ := ring.Owner(r, "large", fmt.Sprintf("app-%d", i))
		owners[m.Name] = true
	}
	a, _ := ring.Owner(r, "ns-1", "one")
	b, _ := ring.Owner(r, "ns-1", "two")
	if len(owners) < 4 || a != b {
		t.Errorf("a split namespace has %d owners of 4; one that is whole has %s and %s", len(owners), a.Name, b.Name)
	}
}

// A growing replica gets more with each step, and ends with its share.
func TestRampUp(t *testing.T) {
	w := newRandomFleet(3)
	load, members := w.even(), w.members(4)
	r := ring.Assign(nil, members[:3], load)
	for _, weight := range []uint32{25, 50, 75, 100} {
		members[3].Weight = weight
		next := ring.Assign(r, members, load)
		share := float64(load.Streams()) * float64(weight) / float64(300+weight)
		if got := next.Streams(load)[members[3].Name]; got < .9*share || got > 1.1*share {
			t.Errorf("weight %d: %.0f streams, its share is %.0f", weight, got, share)
		}
		if moved := ring.Moved(r, next); moved > 30 {
			t.Errorf("weight %d: %d shards moved at once", weight, moved)
		}
		r = next
	}
}

func TestUnusualRings(t *testing.T) {
	if r := ring.Assign(nil, nil, ring.Load{}); r != nil {
		t.Error("a ring without members")
	}
	var none *ring.Ring
	if _, ok := ring.Owner(none, "a", "b"); ok || none.Version() != 0 || none.Key("a", "b") != "a" || none.Split("a") {
		t.Error("no ring owns something")
	}
	one := ring.Assign(nil, []ring.Member{{Name: "a", Address: "a:1", Weight: 1}, {Name: "a", Address: "b:1", Weight: 1}}, ring.Load{})
	if m, ok := ring.Owner(one, "x", ""); !ok || m.Address != "a:1" || one.Version() != 1 {
		t.Errorf("one member: %v", m)
	}
	if kept := ring.Assign(one, nil, ring.Load{}); kept != one {
		t.Error("the last member left, and the ring did not stay")
	}
	moved := ring.Assign(one, []ring.Member{{Name: "a", Address: "c:1", Weight: 1}}, ring.Load{})
	if m, _ := ring.Owner(moved, "x", ""); m.Address != "c:1" || moved.Version() != 2 || ring.Moved(one, moved) != 0 {
		t.Error("a new address is not taken over")
	}
}

// Loads that shift are followed: the bound holds again, not much more than the excess moves, and a load that goes to
// and fro around the limit moves nothing the second time.
func TestShiftingLoad(t *testing.T) {
	for seed := range 30 {
		w := newRandomFleet(seed)
		members, load := w.members(4), w.even()
		r := ring.Assign(nil, members, load)
		hot := ring.Load{Namespaces: map[string]ring.NamespaceLoad{}} // one replica's namespaces grow by four fifths
		for name, n := range load.Namespaces {
			if m, _ := ring.Owner(r, name, ""); m.Name == members[seed%4].Name {
				n.Streams = n.Streams * 9 / 5
			}
			hot.Namespaces[name] = n
		}
		if r.Imbalance(hot) < 1.2 {
			t.Fatalf("seed %d: the load is even: %.2f", seed, r.Imbalance(hot))
		}
		next := ring.Assign(r, members, hot)
		checkBound(t, fmt.Sprintf("seed %d", seed), next, hot)
		excess := (r.Imbalance(hot) - 1.1) / 4
		if _, streams := moves(r, next, hot); streams < excess-.01 || streams > excess+.03 {
			t.Errorf("seed %d: moved %.3f of the streams, the excess is %.3f", seed, streams, excess)
		}
		for range 3 {
			if back := ring.Assign(next, members, load); back != next {
				t.Errorf("seed %d: the load went back, and %d shards with it", seed, ring.Moved(next, back))
			}
			if again := ring.Assign(next, members, hot); again != next {
				t.Errorf("seed %d: the load came again, and %d shards moved", seed, ring.Moved(next, again))
			}
		}
	}
}
