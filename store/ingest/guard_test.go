package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/guard"
)

// A new leader holds the loss of more than half of a kind while nobody led, and lets go at once what something explains: a namespace that
// was deleted, a workload that was scaled.
func TestNewLeaderLetsGoWhatIsExplained(t *testing.T) {
	namespaces := func(names ...string) (all []object.Event) {
		for _, name := range names {
			all = append(all, put(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}", name)))
		}
		return all
	}
	in := func(namespace string, n int) (all []object.Event) {
		for i := range n {
			all = append(all, put(t, strings.ReplaceAll(vs(fmt.Sprintf("%s%d", namespace, i), "1s"), "namespace: shop", "namespace: "+namespace)))
		}
		return all
	}
	podsOf := func(n int) (all []object.Event) {
		for i := range n {
			all = append(all, put(t, strings.Replace(pod(fmt.Sprintf("p%d", i), "app: one"), "spec: {", fmt.Sprintf("status: {podIP: 10.0.0.%d}\nspec: {", i+1), 1)))
		}
		return all
	}
	slice := func(n int, condition string) object.Event {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ", {addresses: [10.0.0.%d], conditions: {%s}, targetRef: {kind: Pod, name: p%d}}", i+1, condition, i)
		}
		return put(t, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: e, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: http, port: 80}]\nendpoints: ["+strings.TrimPrefix(b.String(), ", ")+"]")
	}
	join := func(parts ...any) (all Objects) {
		for _, p := range parts {
			switch p := p.(type) {
			case []object.Event:
				all = append(all, p...)
			case object.Event:
				all = append(all, p)
			}
		}
		return append(all, synced)
	}
	web := put(t, svc)
	for name, c := range map[string]struct {
		before, after Objects
		held          int
	}{
		"a namespace is gone":             {join(namespaces("shop", "old"), web, in("shop", 3), in("old", 10)), join(namespaces("shop"), web, in("shop", 3)), 0},
		"it is there":                     {join(namespaces("shop", "old"), web, in("shop", 3), in("old", 10)), join(namespaces("shop", "old"), web, in("shop", 3)), 10},
		"no Namespaces are told":          {join(web, in("shop", 3), in("old", 10)), join(web, in("shop", 3)), 10},
		"not all Namespaces are told":     {join(namespaces("shop"), web, in("shop", 1), in("x", 1), in("old", 10)), join(namespaces("shop"), web, in("shop", 1), in("x", 1)), 10},
		"most namespaces are gone":        {join(namespaces("shop", "a", "b", "c"), web, in("shop", 1), in("a", 2), in("b", 2), in("c", 2)), join(namespaces("shop"), web, in("shop", 1)), 6},
		"with others for no reason":       {join(namespaces("shop", "old"), web, in("shop", 10), in("old", 10)), join(namespaces("shop"), web, in("shop", 4)), 6},
		"everything":                      {join(namespaces("shop"), web, in("shop", 3)), join(namespaces("shop")), 4},
		"scaled":                          {join(web, podsOf(10), slice(10, "ready: true")), join(web, podsOf(1), slice(1, "ready: true")), 0},
		"scaled, Pods that are not ready": {join(web, podsOf(10), slice(10, "ready: true")), join(web, podsOf(1), slice(10, "ready: false")), 0},
		"Pods that are ready":             {join(web, podsOf(10), slice(10, "ready: true")), join(web, podsOf(1), slice(10, "ready: true")), 9},
		"Pods and slices":                 {join(web, podsOf(10), slice(10, "ready: true")), join(web, podsOf(1)), 9},
	} {
		d := newDesk(t)
		d.step(c.before)
		d.step(Gained{d.epoch})
		stored := len(d.stored)
		next := newDesk(t)
		next.stored = d.stored
		next.step(c.after)
		next.step(Gained{next.epoch})
		if got := len(next.s.held); got != c.held || len(next.stored) >= stored && c.held == 0 {
			t.Errorf("%s: %d records are held, want %d; %d of %d are left", name, got, c.held, len(next.stored), stored)
		}
	}
}

// What vanished under the leader before counts where a new one compares: two fifths under that one and two fifths of the rest while nobody led
// are more than half, and are held. What a new leader lets go it remembers in the same way.
func TestNewLeaderAddsLossesUp(t *testing.T) {
	routes := func(n int) (all Objects) {
		for i := range n {
			all = append(all, put(t, vs(fmt.Sprint("r", i), "1s")))
		}
		return append(all, synced)
	}
	for name, c := range map[string]struct {
		recalled bool
		held     int
	}{"it is told of them": {true, 6}, "it is not": {false, 0}} {
		stored, sums := map[model.Key]model.Hash(nil), []guard.Sum(nil)
		at := time.Unix(1000, 0)
		for i, n := range []int{25, 15, 9} { // each under a leader of its own
			d := newDesk(t)
			if stored != nil {
				d.stored = stored
			}
			d.now = at.Add(time.Duration(i) * time.Minute)
			if c.recalled {
				d.s.memory.Recall(d.now, sums)
			}
			d.step(routes(n))
			d.step(Gained{d.epoch})
			if want := c.held; i == 2 && len(d.s.held) != want || i < 2 && len(d.s.held) > 0 {
				t.Errorf("%s: %d records are held at %d routes, want %d", name, len(d.s.held), n, want)
			}
			stored, sums = d.stored, d.s.memory.Sums(d.now)
		}
	}
}
