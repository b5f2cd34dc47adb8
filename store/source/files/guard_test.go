package files

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// numbered are n documents of a kind in a namespace, from a number on.
func numbered(kind, namespace string, from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: %s\nmetadata: {name: %s%d, namespace: %s, labels: {kubernetes.io/service-name: service%d}}\n---\n",
			kind, strings.ToLower(kind), from+i, namespace, from+i)
	}
	return b.String()
}

// slice is an EndpointSlice with these Pods; "pod1 ready: false" has a condition.
func slice(pods ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web, namespace: shop}\naddressType: IPv4\nendpoints:\n")
	for _, p := range pods {
		name, condition, _ := strings.Cut(p, " ")
		fmt.Fprintf(&b, "- {addresses: [10.0.0.1], conditions: {%s}, targetRef: {kind: Pod, name: %s}}\n", condition, name)
	}
	return b.String()
}

// lost is how many objects go, and how many are held then, when these files become that.
func (d *desk) lost(pairs ...string) (gone, held int) {
	d.t.Helper()
	var looks []look
	for i := 0; i < len(pairs); i += 2 {
		looks = append(looks, look{path: pairs[i], data: []byte(pairs[i+1]), missing: pairs[i+1] == ""})
	}
	first := d.r.step(d.now, looks, false)
	d.now = d.now.Add(time.Second)
	for _, e := range events(append(first, d.r.step(d.now, looks, false)...)) {
		if strings.HasPrefix(e, "delete") {
			gone++
		}
	}
	return gone, len(d.r.guard.Held())
}

// Losses that nothing explains are added up over ten minutes, against what there was before the first.
func TestLossesAreAddedUp(t *testing.T) {
	left := func(n int) string { return numbered("Service", "shop", 0, n) }
	for name, c := range map[string]struct {
		steps      []int         // how many are left after each step
		pause      time.Duration // before each
		gone, held int           // in the last step
	}{
		"40 %, 40 %, 40 %":                {[]int{60, 36, 22}, time.Minute, 0, 38},
		"one after the other":             {[]int{90, 80, 70, 60, 50, 40}, time.Minute, 0, 10},
		"half of all":                     {[]int{75, 50}, time.Minute, 25, 0},
		"slowly":                          {[]int{75, 50, 25}, 10 * time.Minute, 25, 0},
		"the first is too long ago":       {[]int{60, 50, 40}, 6 * time.Minute, 10, 0},
		"some come back in between":       {[]int{60, 100, 60}, time.Minute, 40, 0},
		"what is held is held once":       {[]int{60, 40, 36}, time.Minute, 0, 24},
		"more than there were, and fewer": {[]int{99, 300, 149}, time.Minute, 0, 151},
	} {
		d := newDesk(t)
		d.lost("a.yaml", left(100), "b.yaml", pods("Node/node"))
		var gone, held int
		for _, n := range c.steps {
			d.now = d.now.Add(c.pause - time.Second)
			gone, held = d.lost("a.yaml", left(n))
		}
		if gone != c.gone || held != c.held {
			t.Errorf("%s: %d go and %d are held, want %d and %d", name, gone, held, c.gone, c.held)
		}
	}
	few := newDesk(t)
	few.lost("a", numbered("Service", "shop", 0, 19), "b.yaml", pods("Node/node"))
	for n := 18; n >= 0; n-- { // by hand
		if gone, held := few.lost("a", numbered("Service", "shop", 0, n)); gone != 1 || held != 0 {
			t.Errorf("%d are left of a few: %d go, %d are held", n, gone, held)
		}
	}
}

// What the end of something else explains goes at once, and does not count: a deleted namespace, a deleted Service, a scaled workload.
func TestLossesThatAreExplained(t *testing.T) {
	all := numbered("Service", "shop", 0, 10)
	pod := func(n int) string { return numbered("Pod", "shop", 0, n) }
	names := func(n int, condition string) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("pod%d %s", i, condition))
		}
		return out
	}
	for name, c := range map[string]struct {
		before, after []string
		gone, held    int
	}{
		"without a reason":                 {[]string{"s", all, "n", pods("Node/node")}, []string{"s", numbered("Service", "shop", 0, 2)}, 0, 8},
		"the namespace goes":               {[]string{"s", all, "n", pods("Namespace/shop", "Namespace/x")}, []string{"s", "", "n", pods("Namespace/x")}, 11, 0},
		"another namespace goes":           {[]string{"s", all, "n", pods("Namespace/shop", "Namespace/x")}, []string{"s", "", "n", pods("Namespace/shop")}, 1, 10},
		"with most namespaces":             {[]string{"s", all, "n", pods("Namespace/shop", "Namespace/x", "Namespace/z", "Namespace/w")}, []string{"s", "", "n", pods("Namespace/x")}, 0, 13},
		"everything goes":                  {[]string{"s", all, "n", pods("Namespace/shop")}, []string{"s", "", "n", ""}, 0, 11},
		"slices of Services that go":       {[]string{"s", all, "e", numbered("EndpointSlice", "shop", 0, 6)}, []string{"s", numbered("Service", "shop", 5, 5), "e", numbered("EndpointSlice", "shop", 5, 1)}, 10, 0},
		"slices of Services that stay":     {[]string{"s", all, "e", numbered("EndpointSlice", "shop", 0, 6)}, []string{"e", numbered("EndpointSlice", "shop", 5, 1)}, 0, 5},
		"slices of Services that are held": {[]string{"s", all, "e", numbered("EndpointSlice", "shop", 0, 10)}, []string{"s", numbered("Service", "shop", 8, 2), "e", numbered("EndpointSlice", "shop", 8, 2)}, 0, 16},
		"scaled from 100 to 5":             {[]string{"p", pod(100), "e", slice(names(100, "ready: true")...)}, []string{"p", pod(5), "e", slice(names(5, "ready: true")...)}, 95, 0},
		"scaled to 0":                      {[]string{"p", pod(100), "e", slice(names(100, "ready: true")...)}, []string{"p", "", "e", slice()}, 100, 0},
		"Pods that are ready":              {[]string{"p", pod(100), "e", slice(names(100, "ready: true")...)}, []string{"p", pod(5)}, 0, 95},
		"Pods that nobody calls unready":   {[]string{"p", pod(100), "e", slice(names(100, "")...)}, []string{"p", pod(5)}, 0, 95},
		"Pods that are not ready":          {[]string{"p", pod(100), "e", slice(names(100, "ready: false")...)}, []string{"p", pod(5)}, 95, 0},
		"Pods that are terminating":        {[]string{"p", pod(100), "e", slice(names(100, "ready: true, terminating: true")...)}, []string{"p", pod(5)}, 95, 0},
	} {
		d := newDesk(t)
		d.lost(c.before...)
		if gone, held := d.lost(c.after...); gone != c.gone || held != c.held {
			t.Errorf("%s: %d go and %d are held, want %d and %d", name, gone, held, c.gone, c.held)
		}
	}
}

// Pods that are held because their EndpointSlice says that they are ready go when it says so no more; a namespace that came back explains
// nothing; what was explained is not missed later.
func TestExplanationsComeAndGo(t *testing.T) {
	d := newDesk(t)
	d.lost("p", numbered("Pod", "shop", 0, 10), "e", slice("pod8", "pod9"), "n", pods("Namespace/shop", "Namespace/x"))
	if gone, held := d.lost("p", ""); gone != 8 || held != 2 {
		t.Errorf("%d go, %d are held, want the two that are ready", gone, held)
	}
	if gone, held := d.lost("e", slice("pod9")); gone != 1 || held != 1 {
		t.Errorf("%d go, %d are held after the slice was written", gone, held)
	}
	d.lost("s", numbered("Service", "shop", 0, 10)+numbered("Service", "x", 10, 10))
	d.lost("s", numbered("Service", "shop", 0, 10)+numbered("Service", "x", 10, 9))
	if gone, held := d.lost("n", pods("Namespace/x")); gone != 2 || held != 0 {
		t.Errorf("the namespace of the Pod that is held goes: %d go, %d are held", gone, held)
	}
	if gone, held := d.lost("s", numbered("Service", "x", 10, 9)); gone != 10 || held != 0 {
		t.Errorf("the namespace went before: %d go, %d are held", gone, held)
	}
	if gone, held := d.lost("s", numbered("Service", "x", 10, 5)); gone != 4 || held != 0 {
		t.Errorf("what was explained counts: %d go, %d are held", gone, held)
	}
	d.lost("n", pods("Namespace/shop", "Namespace/x"), "s", numbered("Service", "shop", 0, 20)+numbered("Service", "x", 10, 5))
	if gone, held := d.lost("s", numbered("Service", "x", 10, 5)); gone != 0 || held != 20 {
		t.Errorf("the namespace is back: %d go, %d are held", gone, held)
	}
}
