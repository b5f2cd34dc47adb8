package status

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/machines"
)

// Turns get equal shares, whatever their number and order of requests. A failed object waits without delaying the
// others of its turn.
// Promise: security-workloads.md#who-has-a-machines-token
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var names []string
		for i := range 400 {
			names = append(names, fmt.Sprintf("n%03d", i))
		}
		w, stop := leads(t, c.api(), 1, nil)
		defer stop()
		all := map[Key]Desired[corev1.ConfigMap]{}
		for k, d := range RootCerts(names, "one") {
			if d.Turn = "many"; k.Namespace >= "n300" {
				d.Turn = "some"
			}
			if k.Namespace == "n399" {
				d.Turn = "one"
			}
			all[k] = d
		}
		w.Want(all)
		pass(w.Deadline + 50*time.Millisecond)
		if c.root("n399") == "" {
			t.Error("the one waits for the others")
		}
		pass(2 * time.Second)
		of := map[string]int{}
		for k := range c.objects {
			of[all[k].Turn]++
		}
		if sum := of["many"] + of["some"]; sum < 95 || of["many"] < sum/2-2 || of["some"] < sum/2-2 {
			t.Errorf("written are %v", of)
		}
	})
}

// Each key is visited once, and remaining keys keep their order.
func TestLine(t *testing.T) {
	l := newLine()
	for i, turn := range []string{"a", "a", "b", "a", "b", "c"} {
		l.push(turn, Key{turn, fmt.Sprint(i)})
	}
	looked := func(say func(Key) outcome) (all []string) {
		l.each(func(k Key) outcome { all = append(all, k.Namespace+k.Name); return say(k) })
		return all
	}
	for i, c := range []struct {
		say  func(Key) outcome
		took bool
		want []string
	}{
		{func(Key) outcome { return waits }, false, []string{"a0", "a1", "a3", "b2", "b4", "c5"}},
		{func(Key) outcome { return stops }, false, []string{"a0"}},
		{func(Key) outcome { return stops }, true, []string{"a0"}},
		{func(Key) outcome { return stops }, true, []string{"b2"}},
		{func(k Key) outcome {
			if k.Namespace == "c" {
				return leaves
			}
			return waits
		}, false, []string{"c5", "a1", "a3", "a0", "b4", "b2"}},
		{func(Key) outcome { return leaves }, false, []string{"a1", "a3", "a0", "b4", "b2"}},
		{func(Key) outcome { return waits }, false, nil},
	} {
		if got := looked(c.say); !slices.Equal(got, c.want) {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
		if c.took {
			l.rotate()
		}
	}
	if len(l.turns)+len(l.keys) != 0 {
		t.Errorf("it is empty, and has %v", l)
	}
}

// Service accounts alternate in the writing of their machines' entries; for an unknown machine its namespace does.
// Promise: security-workloads.md#who-has-a-machines-token
func TestTurnsOfMachines(t *testing.T) {
	name := machines.Name{Namespace: "shop", Name: "vms-10.0.0.1"}
	for want, w := range map[string]machines.Wanted{"shop/vm": wantedMachine(nil), "shop": {Gone: true}} {
		if got := Machines(map[machines.Name]machines.Wanted{name: w})[Key(name)].Turn; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
