package delta

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// edited returns manifests; each has some more edits of the same names than the previous one.
func edited(r *rand.Rand, n int) (all []*manifest.Manifest) {
	var m *manifest.Manifest
	for v := range n {
		var puts []*xds.Resource
		for range 20 {
			puts = append(puts, &xds.Resource{Type: xds.Endpoint, Name: strconv.Itoa(r.IntN(60)), Version: strconv.Itoa(v)})
		}
		m = m.With(puts, nil)
		all = append(all, m)
	}
	return all
}

// Differences are cached for each layer: streams of all variants of a scope share the work for the scope's layer, from
// whichever manifest each comes.
func TestDiffsOfAScopeAreMadeOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 37))
	scope, zones := edited(r, 3), edited(r, 8)
	var d Diffs
	for _, zone := range zones {
		for range 10 {
			old, now := manifest.Stack{scope[0], zone}, manifest.Stack{scope[2], zone}
			if got, want := d.between(old, now), manifest.Diff(old, now); !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	}
	if len(d.layers.pairs) != 1 || len(d.stacks.pairs) != len(zones) {
		t.Errorf("differences of %d pairs of layers and of %d pairs of stacks were made, want 1 and %d", len(d.layers.pairs), len(d.stacks.pairs), len(zones))
	}
}

// The cache is bounded and its results are correct. Unused differences are removed, with the old resources in them.
func TestDiffsAreBoundedAndForgotten(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 37))
	all := edited(r, 300)
	var d Diffs
	for range 20_000 {
		old, now := manifest.Stack{all[r.IntN(len(all))]}, manifest.Stack{all[r.IntN(len(all))], manifest.Workload: all[r.IntN(len(all))]}
		if got, want := d.between(old, now), manifest.Diff(old, now); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	bounded(t, &d.stacks)
	bounded(t, &d.layers)
	d.Tick()
	old, now := manifest.Stack{all[0]}, manifest.Stack{all[1]}
	d.between(old, now)
	d.Tick()
	if n := len(d.stacks.pairs); n != 1 || d.stacks.pairs[pair[manifest.Stack]{old, now}] == nil {
		t.Errorf("%d pairs of stacks are remembered, want the one that was asked for since the tick before", n)
	}
	d.Tick()
	if n := len(d.stacks.pairs) + len(d.layers.pairs); n != 0 || d.stacks.size+d.layers.size != 0 {
		t.Errorf("%d pairs are remembered that nobody asks for, of size %d and %d", n, d.stacks.size, d.layers.size)
	}
}

// bounded checks that the length of a memory is consistent and at its limit: otherwise the test did not reach the
// limit.
func bounded[T comparable](t *testing.T, m *memory[T]) {
	t.Helper()
	size := 0
	for _, r := range m.pairs {
		size += r.size()
	}
	if size != m.size || size > maxRemembered || size < maxRemembered*9/10 {
		t.Errorf("%d pairs of size %d are remembered, said to be %d; want %d at most, and nearly that", len(m.pairs), size, m.size, maxRemembered)
	}
}
