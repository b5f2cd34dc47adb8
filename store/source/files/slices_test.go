package files

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
)

// alivePods are Pods with an address, from a number on; status is the rest of their status.
func alivePods(from, n int, labels, status string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: pod%d, namespace: shop, labels: {%s}}\nstatus: {podIP: 10.0.0.%d, %s}\n---\n", from+i, labels, from+i, status)
	}
	return b.String()
}

const ready, unready = "conditions: [{type: Ready, status: 'True'}]", "conditions: [{type: Ready, status: 'False'}]"

// sliceOf is an EndpointSlice of Service web with these Pods' endpoints; without refs it names their addresses alone.
func sliceOf(name string, from, n int, refs bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nendpoints:\n", name)
	for i := range n {
		ref := ""
		if refs {
			ref = fmt.Sprintf(", targetRef: {kind: Pod, name: pod%d}", from+i)
		}
		fmt.Fprintf(&b, "- {addresses: [10.0.0.%d], conditions: {ready: true}%s}\n", from+i, ref)
	}
	return b.String() + "---\n"
}

func webService(selector string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {selector: {" + selector + "}}\n---\n"
}

// An EndpointSlice that loses all of its endpoints, or more than half, while their Pods are there, ready and not terminating, is held as it
// was; what explains the loss lets it pass at once.
func TestEmptiedSlices(t *testing.T) {
	web := webService("app: web")
	pods := func(n int) string { return alivePods(0, n, "app: web", ready) }
	full := []string{"s", web, "p", pods(10), "e", sliceOf("a", 0, 10, true)}
	for name, c := range map[string]struct {
		before, after []string
		held          bool
	}{
		"emptied":                            {full, []string{"e", sliceOf("a", 0, 0, true)}, true},
		"more than half":                     {full, []string{"e", sliceOf("a", 0, 4, true)}, true},
		"half":                               {full, []string{"e", sliceOf("a", 0, 5, true)}, false},
		"the only endpoint":                  {[]string{"s", web, "p", pods(1), "e", sliceOf("a", 0, 1, true)}, []string{"e", sliceOf("a", 0, 0, true)}, true},
		"one of two":                         {[]string{"s", web, "p", pods(2), "e", sliceOf("a", 0, 2, true)}, []string{"e", sliceOf("a", 0, 1, true)}, false},
		"replaced by as many":                {full, []string{"p", pods(20), "e", sliceOf("a", 10, 10, true)}, false},
		"without targetRef, emptied":         {[]string{"s", web, "p", pods(10), "e", sliceOf("a", 0, 10, false)}, []string{"e", sliceOf("a", 0, 0, false)}, true},
		"without targetRef, no such Pods":    {[]string{"s", web, "e", sliceOf("a", 0, 10, false)}, []string{"e", sliceOf("a", 0, 0, false)}, false},
		"no Pods are emitted":                {[]string{"s", web, "e", sliceOf("a", 0, 10, true)}, []string{"e", sliceOf("a", 0, 0, true)}, false},
		"scaled from 10 to 1":                {full, []string{"p", pods(1), "e", sliceOf("a", 0, 1, true)}, false},
		"scaled to 0":                        {full, []string{"p", "", "e", sliceOf("a", 0, 0, true)}, false},
		"the Pods are not ready":             {full, []string{"p", alivePods(0, 10, "app: web", unready), "e", sliceOf("a", 0, 0, true)}, false},
		"the Pods have ended":                {full, []string{"p", alivePods(0, 10, "app: web", "phase: Succeeded"), "e", sliceOf("a", 0, 0, true)}, false},
		"the Pods are terminating":           {full, []string{"p", strings.ReplaceAll(pods(10), "namespace: shop,", "namespace: shop, deletionTimestamp: '2026-01-01T00:00:00Z',"), "e", sliceOf("a", 0, 0, true)}, false},
		"the Service selects others":         {full, []string{"s", webService("app: green"), "e", sliceOf("a", 0, 0, true)}, false},
		"the Service selects them still":     {full, []string{"s", webService("app: web, "), "e", sliceOf("a", 0, 0, true)}, true},
		"the Service goes":                   {full, []string{"s", "", "e", sliceOf("a", 0, 0, true)}, false},
		"moved to another slice":             {full, []string{"e", sliceOf("a", 0, 0, true) + sliceOf("b", 0, 10, true)}, false},
		"another Pod is not ready":           {full, []string{"p", pods(9) + alivePods(9, 1, "app: web", unready), "e", sliceOf("a", 0, 0, true)}, true},
		"five are gone, the others are lost": {full, []string{"p", pods(5), "e", sliceOf("a", 0, 0, true)}, true},
	} {
		d := newDesk(t)
		d.lost(c.before...)
		d.lost(c.after...)
		held := d.r.guard.Held()
		id := object.ID{Origin: allServices.Origin, Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "shop", Name: "a"}
		emitted, now := d.r.Get(id)
		if (len(held) == 1 && held[0].ID == id && held[0].Version != "") != c.held || (emitted != now) != c.held || !c.held && len(held) > 0 {
			t.Errorf("%s: held %v, emitted the newest: %t; want held: %t", name, held, emitted == now, c.held)
		}
		if problems := d.r.problems(); (len(problems) == 1 && problems[0].ID == id) != c.held {
			t.Errorf("%s: problems %v", name, problems)
		}
	}
}

// A slice that is held passes when something explains it, is whole again, or is accepted as it is; of a loss in steps the sum counts.
func TestHeldSlicesComeAndGo(t *testing.T) {
	start := func() *desk {
		d := newDesk(t)
		d.lost("s", webService("app: web"), "p", alivePods(0, 20, "app: web", ready), "e", sliceOf("a", 0, 20, true))
		d.lost("e", sliceOf("a", 0, 0, true))
		if len(d.r.guard.Held()) != 1 {
			t.Fatalf("held %v", d.r.guard.Held())
		}
		return d
	}
	stands := func(d *desk, what string, endpoints int) {
		t.Helper()
		emitted, _ := d.r.Get(object.ID{Origin: allServices.Origin, Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "shop", Name: "a"})
		if n := strings.Count(string(emitted.JSON), "addresses"); n != endpoints {
			t.Errorf("%s: %d endpoints stand, want %d; held %v", what, n, endpoints, d.r.guard.Held())
		}
	}
	d := start()
	stands(d, "held", 20)
	d.lost("p", alivePods(0, 20, "app: web", unready))
	stands(d, "the Pods' status came later", 0)
	d = start()
	d.lost("e", sliceOf("a", 0, 20, true))
	stands(d, "it is back", 20)
	d = start()
	first := d.r.guard.Held()
	d.lost("e", sliceOf("a", 0, 1, true))
	if events, ok := d.r.release(first); ok || len(events) > 0 {
		t.Errorf("a version that is not the newest is accepted: %v", events)
	}
	stands(d, "another loss", 20)
	events, ok := d.r.release(d.r.guard.Held())
	if !ok || len(events) != 1 || events[0].Op != object.Put || events[0].Object == nil || len(d.r.guard.Held()) != 0 {
		t.Errorf("accepted: %v, held %v", events, d.r.guard.Held())
	}
	stands(d, "accepted", 1)
	d = start()
	if gone, held := d.lost("e", "# none\n"); gone != 1 || held != 0 {
		t.Errorf("the slice is deleted: %d go, %d are held", gone, held)
	}

	for pause, held := range map[time.Duration]int{time.Minute: 1, 10 * time.Minute: 0} {
		d := newDesk(t)
		d.lost("s", webService("app: web"), "p", alivePods(0, 100, "app: web", ready), "e", sliceOf("a", 0, 100, true))
		for _, n := range []int{60, 36} {
			d.now = d.now.Add(pause)
			d.lost("e", sliceOf("a", 0, n, true))
		}
		if got := d.r.guard.Held(); len(got) != held {
			t.Errorf("40 %% and 40 %% in steps of %v: held %v", pause, got)
		}
	}
}
