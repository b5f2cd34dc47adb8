package sidecar

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func spell(cs runs) string {
	var out []string
	for _, c := range cs {
		out = append(out, strings.Join(c.entries, " "))
	}
	return strings.Join(out, " | ")
}

// Equal sets of hosts have equal runs, whatever edits led to them; and what an edit did not touch stays clean.
func TestRunsDependOnTheHostsAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var live runs
	have := map[string]bool{}
	for i := range 5000 {
		host := fmt.Sprintf("host-%d", r.IntN(400))
		for i := range live {
			live[i].dirty = false
		}
		if i > 1500 && r.IntN(5) > 1 || r.IntN(5) == 0 { // grows first, then shrinks
			live.remove(host)
			delete(have, host)
		} else {
			live.touch(host)
			have[host] = true
		}
		dirty := 0
		for _, c := range live {
			if c.dirty {
				dirty++
			}
		}
		if dirty > 2 {
			t.Fatalf("step %d: %d runs are to be joined again for one host", i, dirty)
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

// What stood behind a run's end is dirty exactly where it moved.
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
		live[i].dirty = false
	}
	end := slices.IndexFunc(all, ends)
	live.remove(all[end]) // two runs become one
	if !live[0].dirty || slices.ContainsFunc(live[1:], func(c chunk) bool { return c.dirty }) {
		t.Error("joining two runs marks others than them")
	}
	live.touch(all[end]) // and two again
	if !live[0].dirty || !live[1].dirty || live[2].dirty {
		t.Error("splitting a run marks others than the two")
	}
}
