package ring_test

import (
	"math"
	"testing"

	"navarch.io/navarch/shard/ring"
)

// resettled returns the fraction of the streams whose owner changed, whatever their keys; keys reports whether a
// namespace was split or joined.
func resettled(a, b *ring.Ring, load ring.Load) (part float64, keys bool) {
	moved := 0
	for name, n := range load.Namespaces {
		for workload, streams := range n.Workloads {
			x, _ := ring.Owner(a, name, workload)
			if y, _ := ring.Owner(b, name, workload); x.Name != y.Name {
				moved += streams
			}
		}
	}
	return float64(moved) / float64(load.Streams()), !sameSplits(a, b)
}

// Tenants of very different sizes: one replica more or less of n moves 1.05/n of the streams on average at most, and
// never more than 1/n and three standard deviations, those of namespaces that it splits or joins among them. It is not
// so of shards: the lightest have few streams, so a replica may have most of them.
func TestMovesOfTenants(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8, 10, 20} {
		p := 1 / float64(n)
		most := p + 3*math.Sqrt(p*(1-p)/ring.Shards)
		type total struct{ sum, count, keys float64 }
		totals := map[string]*total{"+1": {}, "+1 of what shrank": {}, "-1": {}, "-1 of what grew": {}, "-1 of what shrank": {}}
		see := func(what string, seed int, a, b *ring.Ring, load ring.Load) {
			part, keys := resettled(a, b, load)
			if part > most {
				t.Errorf("%s of %d, seed %d: %.3f of the streams moved, at most %.3f", what, n, seed, part, most)
			}
			all := totals[what]
			all.sum, all.count = all.sum+part, all.count+1
			if keys {
				all.keys++
			}
		}
		for seed := range 12 {
			w := newRandomFleet(seed)
			load, members := w.zipf(), w.members(3*n)
			base := ring.Assign(nil, members[:n], load)
			if again := ring.Assign(base, members[:n], load); again != base {
				t.Errorf("%d, seed %d: nobody came or went, and %d shards moved", n, seed, ring.Moved(base, again))
			}
			see("+1", seed, base, ring.Assign(base, members[:n+1], load), load)
			fewer := ring.Assign(nil, members[:n-1], load)
			grown := ring.Assign(fewer, members[:n], load)
			shrunk := ring.Assign(nil, members, load)
			for i := len(members) - 1; i >= n; i-- {
				shrunk = ring.Assign(shrunk, members[:i], load)
			}
			if settled := ring.Assign(shrunk, members[:n], load); !shrunk.Resplit(load) || settled.Resplit(load) ||
				len(settled.SplitNamespaces()) >= len(shrunk.SplitNamespaces()) {
				t.Errorf("%d, seed %d: nothing is joined when nobody comes or goes", n, seed)
			}
			see("+1 of what shrank", seed, shrunk, ring.Assign(shrunk, members[:n+1], load), load)
			for i := range min(n, 5) {
				see("-1", seed, base, ring.Assign(base, without(members[:n], i), load), load)
				see("-1 of what grew", seed, grown, ring.Assign(grown, without(members[:n], i), load), load)
				see("-1 of what shrank", seed, shrunk, ring.Assign(shrunk, without(members[:n], i), load), load)
			}
		}
		for what, all := range totals {
			mean := all.sum / all.count
			t.Logf("%s of %d: mean %.4f (at most %.4f), keys changed in %.2f", what, n, mean, 1.05*p, all.keys/all.count)
			if mean > 1.05*p {
				t.Errorf("%s of %d: %.4f of the streams moved on average, at most %.4f", what, n, mean, 1.05*p)
			}
		}
	}
}
