package manifest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"navarch.io/navarch/push/xds"
)

func sumOf(all []*xds.Resource) (s Sum) {
	for _, r := range all {
		s.Add(r.Name, r.Version)
	}
	return s
}

// The sum of a stack is that of its visible resources, in any order, and differs if a name or a version differs.
func TestSumOfAStack(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 4))
		var s Stack
		for layer := range s {
			var all []*xds.Resource
			for range r.IntN(20) {
				name := strconv.Itoa(r.IntN(30))
				if layer > 0 && r.IntN(4) == 0 {
					all = append(all, Hidden(xds.Cluster, name))
				} else {
					all = append(all, &xds.Resource{Type: xds.Cluster, Name: name, Version: strconv.Itoa(r.IntN(3))})
				}
			}
			s[layer] = Of(all...)
		}
		visible := slices.Collect(s.All())
		r.Shuffle(len(visible), func(i, j int) { visible[i], visible[j] = visible[j], visible[i] })
		for range 2 { // the second time it is kept
			if s.Sum() != sumOf(visible) {
				t.Fatalf("seed %d: the sum is not that of what is visible", seed)
			}
		}
		if len(visible) == 0 {
			continue
		}
		if s.Sum() == sumOf(visible[1:]) || s.Sum() == sumOf(append(visible, visible[0])) {
			t.Fatalf("seed %d: one less or one twice has the same sum", seed)
		}
		visible[0] = &xds.Resource{Type: xds.Cluster, Name: visible[0].Name, Version: "another"}
		if s.Sum() == sumOf(visible) {
			t.Fatalf("seed %d: another version has the same sum", seed)
		}
	}
}

// Two names that exchange their versions have another sum, and a name is not confused with a version.
func TestSumBindsVersionsToNames(t *testing.T) {
	sum := func(pairs ...string) (s Sum) {
		for i := 0; i < len(pairs); i += 2 {
			s.Add(pairs[i], pairs[i+1])
		}
		return s
	}
	base := sum("a", "1", "b", "2")
	for what, other := range map[string]Sum{"exchanged": sum("a", "2", "b", "1"), "turned round": sum("1", "a", "2", "b"), "joined": sum("a1", "", "b2", "")} {
		if other == base {
			t.Errorf("%s: the same sum", what)
		}
	}
	if sum("b", "2", "a", "1") != base {
		t.Error("the order counts")
	}
}
