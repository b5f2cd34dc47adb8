package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"navarch.io/navarch/push/xds"
)

var pool = map[string]*xds.Resource{}

// resource returns one pointer for one name and version, like push/pool.
func resource(name string, version int) *xds.Resource {
	key := fmt.Sprint(name, version)
	if pool[key] == nil {
		r, err := xds.Encode(xds.Cluster, name, &clusterv3.Cluster{Name: name, AltStatName: fmt.Sprint(version)})
		if err != nil {
			panic(err)
		}
		pool[key] = r
	}
	return pool[key]
}

type model map[string]*xds.Resource

func agree(t *testing.T, what string, m *Manifest, want model) {
	t.Helper()
	got := model{}
	for r := range m.All() {
		if got[r.Name] != nil {
			t.Fatalf("%s: %s is there twice", what, r.Name)
		}
		got[r.Name] = r
	}
	if !maps.Equal(got, want) || m.Len() != len(want) {
		t.Fatalf("%s: has %d, Len says %d, want %d", what, len(got), m.Len(), len(want))
	}
	for name, r := range want {
		if m.Get(name) != r {
			t.Fatalf("%s: Get(%s) is %v", what, name, m.Get(name))
		}
	}
	if m.Get("nobody") != nil {
		t.Fatalf("%s: has a nobody", what)
	}
}

func edit(r *rand.Rand, names int, m model) (puts []*xds.Resource, deletes []string, next model) {
	next = maps.Clone(m)
	for range r.IntN(names/3 + 2) {
		name := fmt.Sprint("n", r.IntN(names))
		if r.IntN(3) == 0 {
			deletes = append(deletes, name)
		} else {
			puts = append(puts, resource(name, r.IntN(3)))
		}
	}
	for _, name := range deletes {
		delete(next, name)
	}
	for _, p := range puts { // puts come after deletes
		next[p.Name] = p
	}
	return puts, deletes, next
}

// Manifests behave like maps, older ones never change, and Diff finds the differences of the maps.
func TestManifestIsAMap(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		names := []int{5, 60, 400}[seed%3]
		var m *Manifest
		want := model{}
		type generation struct {
			m    *Manifest
			want model
		}
		past := []generation{{m, want}}
		for range 30 {
			puts, deletes, next := edit(r, names, want)
			changed := !maps.Equal(want, next)
			was := m
			m, want = m.With(puts, deletes), next
			if m == was && changed {
				t.Fatal("a difference was lost")
			}
			agree(t, fmt.Sprintf("seed %d", seed), m, want)
			past = append(past, generation{m, want})
		}
		for i, g := range past {
			agree(t, fmt.Sprintf("seed %d, generation %d afterwards", seed, i), g.m, g.want)
			other := past[r.IntN(len(past))]
			sameDiff(t, Stack{g.m}, Stack{other.m}, g.want, other.want)
		}
		if m.With(nil, []string{"nobody"}) != m || m.With(slices.Collect(maps.Values(want)), nil) != m && len(want) > 0 {
			t.Fatalf("seed %d: no change is not the receiver itself", seed)
		}
	}
}

func sameDiff(t *testing.T, a, b Stack, was, is model) {
	t.Helper()
	want := map[string]Delta{}
	for name, r := range was {
		if is[name] != r {
			want[name] = Delta{Name: name, Old: r, New: is[name]}
		}
	}
	for name, r := range is {
		if was[name] == nil {
			want[name] = Delta{Name: name, New: r}
		}
	}
	got := map[string]Delta{}
	var order []string
	for _, d := range Diff(a, b) {
		got[d.Name] = d
		order = append(order, d.Name)
	}
	if !maps.Equal(got, want) || len(order) != len(want) {
		t.Fatalf("Diff has %d of %d", len(got), len(want))
	}
	if !slices.IsSorted(order) {
		t.Fatal("Diff is not in the order of names")
	}
}

// A name in an upper layer replaces it in lower layers, until the upper layer drops it.
func TestStackIsLayered(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		var layers [NumLayers]model
		var s Stack
		visible := func() model {
			all := model{}
			for _, l := range layers {
				maps.Copy(all, l)
			}
			return all
		}
		for i := range layers {
			layers[i] = model{}
		}
		for range 20 {
			before, was := s, visible()
			for range 1 + r.IntN(3) {
				i := r.IntN(NumLayers)
				puts, deletes, next := edit(r, 12, layers[i])
				s[i], layers[i] = s[i].With(puts, deletes), next
			}
			is := visible()
			got := model{}
			for x := range s.All() {
				if got[x.Name] != nil {
					t.Fatalf("seed %d: %s is visible twice", seed, x.Name)
				}
				got[x.Name] = x
			}
			if !maps.Equal(got, is) {
				t.Fatalf("seed %d: visible are %v, want %v", seed, len(got), len(is))
			}
			if sorted := s.Sorted(); len(sorted) != len(is) || !slices.IsSortedFunc(sorted, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) }) {
				t.Fatalf("seed %d: Sorted has %d", seed, len(sorted))
			}
			sameDiff(t, before, s, was, is)
		}
	}
}

// An edit of one resource copies one bucket and its page, and a comparison visits only these, whatever the number of
// resources.
func TestEditShares(t *testing.T) {
	var all []*xds.Resource
	for i := range 4000 {
		all = append(all, resource(fmt.Sprint("n", i), 0))
	}
	m := Of(all...)
	next := m.With([]*xds.Resource{resource("n7", 1)}, nil)
	buckets := 0
	for i, page := range m.pages {
		for j := range page {
			if at := (bucketIndex{i, j}); !same(*m.at(at), *next.at(at)) {
				buckets++
			}
		}
	}
	if buckets != 1 {
		t.Errorf("%d buckets were copied for one edit", buckets)
	}
	if pages := copied(m, next); pages != 1 || len(m.pages) < 4 {
		t.Errorf("%d of %d pages were copied for one edit", pages, len(m.pages))
	}
	if d := Diff(Stack{m}, Stack{next}); len(d) != 1 || d[0].Name != "n7" {
		t.Errorf("%v", d)
	}
}

// copied counts the pages of a manifest that another one does not have.
func copied(m, next *Manifest) (n int) {
	for i, page := range next.pages {
		if i >= len(m.pages) || &page[0] != &m.pages[i][0] {
			n++
		}
	}
	return n
}

// A manifest that grows moves at most a page of resources with each insertion, and never all.
func TestGrowthIsGradual(t *testing.T) {
	var m *Manifest
	want := model{}
	for i := range 9000 {
		r := resource(fmt.Sprint("g", i), 0)
		next := m.With([]*xds.Resource{r}, nil)
		if want[r.Name] = r; m != nil && copied(m, next) > 3 {
			t.Fatalf("the %dth resource copies %d of %d pages", i, copied(m, next), len(next.pages))
		}
		m = next
	}
	agree(t, "grown", m, want)
	if n := len(m.pages); n != 9 {
		t.Errorf("%d pages", n)
	}
}
