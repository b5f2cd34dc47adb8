package manifest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"navarch.io/navarch/push/xds"
)

// A name that an upper layer hides is absent: from Get, from All, and from Diff when a lower layer edits it.
func TestHidden(t *testing.T) {
	one := &xds.Resource{Type: xds.Listener, Name: "one", Version: "1"}
	two := &xds.Resource{Type: xds.Listener, Name: "one", Version: "2"}
	other := &xds.Resource{Type: xds.Listener, Name: "other", Version: "1"}
	hides := Of(Hidden(xds.Listener, "one"))
	before := Stack{Scope: Of(one, other), Overlay: hides}
	after := Stack{Scope: before[Scope].With([]*xds.Resource{two}, nil), Overlay: hides}
	if before.Get("one") != nil || before.Get("other") != other {
		t.Error("Get: the hidden one is there, or the other is not")
	}
	if got := slices.Collect(before.All()); len(got) != 1 || got[0] != other {
		t.Errorf("All: %v", got)
	}
	if d := Diff(before, after); len(d) != 0 {
		t.Errorf("an edit below the hidden name is a difference: %v", d)
	}
	if d := Diff(Stack{Scope: before[Scope]}, before); len(d) != 1 || d[0].Old != one || d[0].New != nil {
		t.Errorf("hiding is %v, want a removal", d)
	}
}

// A pending resource is absent from Get and All, and Pending distinguishes it from a name that does not exist.
func TestPending(t *testing.T) {
	one := &xds.Resource{Type: xds.Secret, Name: "one", Version: "1"}
	before := Stack{Overlay: Of(Pending(xds.Secret, "one"))}
	after := Stack{Overlay: before[Overlay].With([]*xds.Resource{one}, nil)}
	if before.Get("one") != nil || !before.Pending("one") || before.Pending("other") || after.Pending("one") || after.Get("one") != one {
		t.Error("pending is there, or not pending")
	}
	if got := slices.Collect(before.All()); len(got) != 0 {
		t.Errorf("All: %v", got)
	}
	if d := Diff(before, after); len(d) != 1 || d[0].Old != nil || d[0].New != one {
		t.Errorf("what comes is %v", d)
	}
	if d := Diff(Stack{}, before); len(d) != 0 {
		t.Errorf("pending is a difference: %v", d)
	}
}

// The order of names is merged from the cached orders of the layers: it equals the sorted visible resources.
func TestSortedIsAllInOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		var s Stack
		for layer := range s {
			var all []*xds.Resource
			for range r.IntN(40) {
				name := strconv.Itoa(r.IntN(60))
				if r.IntN(4) == 0 {
					all = append(all, Hidden(xds.Cluster, name), Pending(xds.Cluster, strconv.Itoa(60+r.IntN(9))))
				} else {
					all = append(all, &xds.Resource{Type: xds.Cluster, Name: name, Version: strconv.Itoa(layer)})
				}
			}
			s[layer] = Of(all...)
		}
		want := slices.SortedFunc(s.All(), byName)
		for range 2 {
			if got := s.Sorted(); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %v, want %v", seed, got, want)
			}
			layers := s.Layers()
			for layer, all := range layers {
				if !slices.IsSortedFunc(all, byName) || slices.ContainsFunc(all, func(r *xds.Resource) bool { return r.Version != strconv.Itoa(layer) }) {
					t.Fatalf("seed %d: layer %d: %v", seed, layer, all)
				}
			}
			if got := slices.SortedFunc(slices.Values(slices.Concat(layers[:]...)), byName); !slices.Equal(got, want) {
				t.Fatalf("seed %d: the layers have %v, want %v", seed, got, want)
			}
		}
	}
}

// The blend of a variant and its scope is computed once for all its proxies, and again for another scope.
func TestSharedLayersAreBlendedOnce(t *testing.T) {
	all := func(n, from int, version string) *Manifest {
		var out []*xds.Resource
		for i := range n {
			out = append(out, &xds.Resource{Type: xds.Cluster, Name: strconv.Itoa(from + i), Version: version})
		}
		return Of(out...)
	}
	proxy := Stack{Scope: all(1000, 1000, "scope"), Variant: all(300, 1900, "variant")}
	if n := len(proxy.Sorted()); n != 1200 || proxy.Sum().Names.Len != n {
		t.Fatalf("%d resources, of which the sum says %d", n, proxy.Sum().Names.Len)
	}
	if n := testing.AllocsPerRun(10, func() { proxy.Sorted(); proxy.Sum() }); n > 1 {
		t.Errorf("%v allocations for each proxy", n)
	}
	other := Stack{Scope: all(500, 2000, "scope"), Variant: proxy[Variant]}
	want := slices.SortedFunc(other.All(), byName)
	if got := other.Sorted(); !slices.Equal(got, want) || other.Sum() != sumOf(want) {
		t.Errorf("over another scope: %d resources, want %d", len(got), len(want))
	}
}
