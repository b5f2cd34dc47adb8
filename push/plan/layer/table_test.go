package layer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// A table behaves like a map. Edits of a fork do not change its origin, and vice versa.
func TestTableIsAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	type pair struct {
		table Table[int]
		want  map[string]*int
	}
	all := []*pair{{want: map[string]*int{}}}
	for i := range 20000 {
		p := all[r.IntN(len(all))]
		name := fmt.Sprint(r.IntN(60))
		switch v := i; {
		case r.IntN(100) == 0:
			all = append(all, &pair{p.table.Fork(), maps.Clone(p.want)})
			if len(all) > 6 {
				all = all[1:]
			}
		case r.IntN(3) == 0:
			p.table.Put(name, nil)
			delete(p.want, name)
		default:
			p.table.Put(name, &v)
			p.want[name] = &v
		}
		for n, p := range all {
			if got := maps.Collect(p.table.All()); !maps.Equal(got, p.want) || p.table.Len() != len(p.want) || p.table.Get(name) != p.want[name] {
				t.Fatalf("step %d, table %d: has %d (size %d), want %d", i, n, len(got), p.table.Len(), len(p.want))
			}
		}
	}
}
