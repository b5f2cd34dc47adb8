package intern

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
)

func TestList(t *testing.T) {
	var table, other Table[string]
	if table.List() != (List[string]{}) || table.List().Len() != 0 || table.List().All() != nil {
		t.Error("the empty list is not the zero list")
	}
	lists := [][]string{{"a"}, {"a", "b"}, {"b", "a"}, {"ab"}, {"", "ab"}, {"a", "b", ""}}
	var held []List[string]
	for _, l := range lists {
		held = append(held, table.List(l...))
	}
	for i, l := range lists {
		again := table.List(slices.Clone(l)...)
		for j := range held {
			if (again == held[j]) != (i == j) {
				t.Errorf("%q == %q is %v", l, lists[j], again == held[j])
			}
		}
		if !slices.Equal(again.All(), l) || again.Len() != len(l) {
			t.Errorf("%q holds %q", l, again.All())
		}
	}
	if table.Size() != len(lists) {
		t.Errorf("size %d, want %d", table.Size(), len(lists))
	}
	if other.List("a") == held[0] {
		t.Error("lists of two tables are equal")
	}
	runtime.KeepAlive(held)
}

// Specs contain handles: the caller's slice may change afterwards, and Specs with equal lists are the same map key.
func TestFrozen(t *testing.T) {
	type spec struct {
		hosts List[string]
		port  int
	}
	var table Table[string]
	mine := []string{"a", "b"}
	s := spec{table.List(mine...), 80}
	mine[0] = "changed"
	if got := s.hosts.All(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the list follows the caller's slice: %q", got)
	}
	if seen := map[spec]int{s: 1}; seen[spec{table.List("a", "b"), 80}] != 1 {
		t.Error("an equal Spec is another key")
	}
}

func TestCollected(t *testing.T) {
	var table Table[string]
	held := table.List("held")
	for i := range 100 {
		table.List(fmt.Sprint(i))
	}
	for range 1000 {
		if table.Size() == 1 {
			break
		}
		runtime.GC()
		runtime.Gosched()
	}
	table.mu.Lock()
	buckets := len(table.lists)
	table.mu.Unlock()
	if n := table.Size(); n != 1 || buckets != 1 {
		t.Errorf("%d lists in %d buckets live, want the one that is held", n, buckets)
	}
	if table.List("held") != held {
		t.Error("what is held was lost")
	}
	runtime.KeepAlive(held)
}

// Equal lists have equal handles in all goroutines, while the collector runs.
func TestConcurrent(t *testing.T) {
	var table Table[int]
	var wg sync.WaitGroup
	results := make([]map[int]List[int], 8)
	for g := range results {
		results[g] = map[int]List[int]{}
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 2000 {
				n := r.IntN(50)
				l := table.List(n, n+1)
				if old, ok := results[g][n]; ok && old != l {
					t.Errorf("%d is two handles", n)
				}
				results[g][n] = l
				if i%500 == 0 {
					runtime.GC()
				}
			}
		})
	}
	wg.Wait()
	for n, l := range results[0] {
		for g := range results {
			if o, ok := results[g][n]; ok && o != l {
				t.Errorf("%d is two handles", n)
			}
		}
	}
}

func BenchmarkList(b *testing.B) {
	var table Table[string]
	held := table.List("a", "b", "c")
	b.ReportAllocs()
	for b.Loop() {
		if table.List("a", "b", "c") != held {
			b.Fatal("lost")
		}
	}
}
