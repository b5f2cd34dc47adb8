package routes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func spell(rs runs) string {
	var out []string
	for _, c := range rs {
		out = append(out, strings.Join(c.ids, " "))
	}
	return strings.Join(out, " | ")
}

// Equal sets of hosts have equal runs, whatever edits led to them, and runs without an edited host stay clean.
func TestRunsDependOnTheHostsAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var live runs
	have := map[string]bool{}
	for i := range 5000 {
		host := fmt.Sprintf("host-%d", r.IntN(400))
		for i := range live {
			live[i].stale = false
		}
		if i > 1500 && r.IntN(5) > 1 || r.IntN(5) == 0 { // grows first, then shrinks
			live.remove(host)
			delete(have, host)
		} else {
			live.touch(host)
			have[host] = true
		}
		stale := 0
		for _, c := range live {
			if c.stale {
				stale++
			}
		}
		if stale > 2 {
			t.Fatalf("step %d: %d runs are to be joined again for one host", i, stale)
		}
		var fresh runs
		for _, h := range slices.Sorted(maps.Keys(have)) {
			fresh.touch(h)
		}
		if spell(live) != spell(fresh) {
			t.Fatalf("step %d (%s):\nincremental %s\nfrom scratch %s", i, host, spell(live), spell(fresh))
		}
	}
}

// When the host that ends a run is removed or added, exactly the runs that its neighbours are in become stale.
func TestRunsMarkWhatMoved(t *testing.T) {
	var all []string
	for i := range 2000 {
		all = append(all, fmt.Sprintf("host-%04d", i))
	}
	var live runs
	for _, h := range all {
		live.touch(h)
	}
	if n := len(live); n < 30 || n > 130 {
		t.Errorf("2,000 hosts are %d runs, want about 62", n)
	}
	for i := range live {
		live[i].stale = false
	}
	end := slices.IndexFunc(all, endsRun)
	live.remove(all[end]) // two runs become one
	if !live[0].stale || slices.ContainsFunc(live[1:], func(c run) bool { return c.stale }) {
		t.Error("joining two runs marks others than them")
	}
	live.touch(all[end]) // and two again
	if !live[0].stale || !live[1].stale || live[2].stale {
		t.Error("splitting a run marks others than the two")
	}
}
