package ingest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// For any additions, changes, unreadable versions and removals in any order, the records equal those made from scratch.
// After all objects are removed, no state is left.
func TestLookups(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 7))
		w, there := newInventory(Options{}), map[object.ID]object.Event{}
		for step := range 400 {
			var events []object.Event
			for range 1 + r.IntN(3) {
				e := lookupEvent(t, r, step > 350)
				if before := there[e.ID]; e.Op == object.Broken && before.Op == object.Put {
					continue // the last good version stays in effect; from scratch there is no good version
				}
				if there[e.ID] = e; e.Op == object.Delete {
					delete(there, e.ID)
				}
				events = append(events, e)
			}
			w.applyEvents(events)
			if step%7 == 0 {
				want, _ := Records(slices.Collect(maps.Values(there)), Options{}.Normal)
				got := slices.SortedFunc(maps.Values(w.wanted.records), func(a, b model.Record) int { return a.Meta().Key.Compare(b.Meta().Key) })
				if !slices.EqualFunc(got, want, func(a, b model.Record) bool { return a.Meta().Key == b.Meta().Key && a.Meta().Hash == b.Meta().Hash }) {
					t.Fatalf("seed %d, step %d: records %v, from nothing %v", seed, step, got, want)
				}
			}
		}
		for _, e := range there {
			w.applyEvents([]object.Event{gone(e)})
		}
		if w.objects.Len() > 0 || !w.wanted.empty() {
			t.Errorf("seed %d: %d objects are left, records %v", seed, w.objects.Len(), w.wanted.records)
		}
	}
}

// An endpoint of a slice that is as its Pod is by itself is the one of the Pod's Workload, whichever came first, and is
// another one where they differ.
func TestEndpointIsItsPods(t *testing.T) {
	p := func(ready string) object.Event {
		return put(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, labels: {a: b}}, spec: {nodeName: n1}, status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: %q}]}}", ready))
	}
	of := func(condition string) object.Event {
		return put(t, strings.Replace(epSlice("s", "10.0.0.1", "p"), "targetRef", condition+"targetRef", 1))
	}
	for name, c := range map[string]struct {
		events []object.Event
		one    bool
	}{
		"the Pod first":        {[]object.Event{p("True"), of("")}, true},
		"the slice first":      {[]object.Event{of(""), p("True")}, true},
		"the Pod changes":      {[]object.Event{of(""), p("True"), p("False")}, true},
		"the Pod is not there": {[]object.Event{p("True"), of(""), gone(p("True"))}, false},
		"the slice differs":    {[]object.Event{p("True"), of("conditions: {ready: false}, ")}, false},
		"it has a host name":   {[]object.Event{p("True"), of("hostname: h, ")}, false},
	} {
		w := newInventory(Options{})
		for _, e := range c.events {
			w.applyEvents([]object.Event{e})
		}
		endpoint := w.wanted.records[model.Key{Kind: model.KindEndpoints, Namespace: "shop", Name: "s"}].(*model.Endpoints).Spec.Endpoints[0]
		own, is := w.wanted.records[model.Key{Kind: model.KindWorkload, Namespace: "shop", Name: "p"}].(*model.Workload)
		if one := is && own.Spec.Endpoint == endpoint; one != c.one {
			t.Errorf("%s: one endpoint: %v, want %v: %v", name, one, c.one, endpoint)
		}
	}
}

// lookupEvent is a change of a Node, a Namespace, a Pod or a slice.
func lookupEvent(t *testing.T, r *rand.Rand, goes bool) object.Event {
	n, label := r.IntN(4), r.IntN(3)
	text := ""
	switch r.IntN(6) {
	case 0:
		text = fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: n%d, labels: {topology.kubernetes.io/region: r%d}}}", n, label)
	case 1:
		text = fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: istio-system, labels: {topology.istio.io/network: w%d}}}", label)
	case 2, 3:
		text = fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: shop, labels: {l: l%d}}, spec: {nodeName: n%d}, status: {podIP: 10.0.0.%d}}", n, label, r.IntN(4), n+1)
	default:
		text = epSlice(fmt.Sprint("s", n), fmt.Sprintf("10.0.0.%d", 1+r.IntN(4)), fmt.Sprint("p", r.IntN(4)))
	}
	switch e := put(t, text); {
	case goes || r.IntN(3) == 0:
		return gone(e)
	case r.IntN(8) == 0:
		return broken(e)
	default:
		return e
	}
}
