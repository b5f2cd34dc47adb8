package xds

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
)

// many returns n resources by name; edition is in their bytes.
func many(t testing.TB, ty Type, n, size, edition int) []*Resource {
	t.Helper()
	all := make([]*Resource, n)
	for i := range all {
		name := fmt.Sprintf("outbound|80||service-%05d.shop", i)
		r, err := Encode(ty, name, &clusterv3.Cluster{Name: name, AltStatName: fmt.Sprintf("%0*d", size, edition)})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = r
	}
	return all
}

// singly returns the expected result of Pack, joined from single resources.
func singly(set []*Resource) []byte {
	var b []byte
	for _, r := range set {
		b = append(b, bytes.Join(r.Delta(), nil)...)
	}
	return b
}

func packed(t *testing.T, what string, set []*Resource) (pieces int) {
	t.Helper()
	want := singly(set)
	bufs, size := Pack(set)
	if got := bufs.Materialize(); !bytes.Equal(got, want) || size != len(want) {
		t.Fatalf("%s: %d bytes, said to be %d; want %d", what, len(got), size, len(want))
	}
	return len(bufs)
}

// For any sets of resources and any order of calls, the bytes of Pack are those of its resources one after the other.
func TestPackIsConcatenation(t *testing.T) {
	editions := [][]*Resource{many(t, Cluster, 300, 10, 0), many(t, Cluster, 300, 10, 1)}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var set []*Resource
		for i := range editions[0] {
			if seed%3 == 0 || r.IntN(10) > 0 {
				set = append(set, editions[min(1, r.IntN(30)/29)][i])
			}
		}
		from := r.IntN(20)
		for range 1 + r.IntN(3) {
			packed(t, fmt.Sprintf("seed %d", seed), set[from:])
		}
	}
	if bufs, size := Pack(nil); len(bufs) != 0 || size != 0 {
		t.Error("nothing is not nothing")
	}
}

// A thousand resources that are sent together repeatedly are a few shared pieces; an edit of one, or a resource that
// only one proxy has, changes one of them.
func TestRunsAreFewAndShared(t *testing.T) {
	set := many(t, Cluster, 1000, 500, 0)
	if n := packed(t, "first", set); n != 1000 {
		t.Errorf("%d pieces at first: what nobody else may be sent is copied", n)
	}
	least := packed(t, "second", set)
	if bound := 2*len(singly(set))/runBytes + 1000/runCut + 5; least > bound {
		t.Errorf("%d pieces, want %d at most", least, bound)
	}
	one, _ := Pack(set)
	two, _ := Pack(slices.Clone(set))
	for i := range one {
		if &one[i].ReadOnlyData()[0] != &two[i].ReadOnlyData()[0] {
			t.Fatal("two streams do not share a piece")
		}
	}
	longest := 0
	for _, r := range set {
		if all := r.runs.Load(); all != nil {
			longest = max(longest, len((*all)[0].set))
		}
	}
	more := slices.Insert(slices.Clone(set), 500, many(t, Cluster, 1, 500, 9)[0])
	edited := slices.Clone(set)
	edited[500] = many(t, Cluster, 501, 500, 1)[500]
	for what, other := range map[string][]*Resource{"one more": more, "one edited": edited} {
		packed(t, "again", set)
		packed(t, "again", set)
		if n := packed(t, what, other); n > least+longest+1 {
			t.Errorf("%s: %d pieces, without it %d, and no run is longer than %d", what, n, least, longest)
		}
	}
}

// Several kinds of proxies have different resources among the common ones: the runs of each kind are kept, in any order
// of the kinds.
func TestRunsOfSeveralKinds(t *testing.T) {
	kinds := make([][]*Resource, 3)
	shared := many(t, Cluster, 1000, 500, 0)
	for k := range kinds {
		own := many(t, Cluster, 1000, 500, k+1)
		for i, r := range shared {
			if i%5 == 0 {
				r = own[i]
			}
			kinds[k] = append(kinds[k], r)
		}
	}
	for range 2 {
		for _, set := range kinds {
			packed(t, "first and second", set)
		}
	}
	for k, set := range kinds {
		if n := packed(t, "third", set); n > 1000/10 {
			t.Errorf("kind %d: %d pieces", k, n)
		}
	}
}

// Large resources and private keys are in memory once.
func TestWhatIsNotJoined(t *testing.T) {
	for what, set := range map[string][]*Resource{"large": many(t, Cluster, 10, runBytes/4, 0), "secrets": many(t, Secret, 10, 10, 0)} {
		for range 3 {
			if n := packed(t, what, set); n != len(set) {
				t.Errorf("%s: %d pieces of %d resources", what, n, len(set))
			}
		}
	}
}

func TestPackFromManySides(t *testing.T) {
	set := many(t, Cluster, 200, 10, 0)
	want := singly(set)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				from := (i * j) % 7
				bufs, _ := Pack(set[from:])
				if !bytes.HasSuffix(want, bufs.Materialize()) {
					t.Error("other bytes")
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkPack(b *testing.B) {
	set := many(b, Cluster, 1000, 500, 0)
	Pack(set)
	b.ReportAllocs()
	for b.Loop() {
		Pack(set)
	}
}
