package ingest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// luaFilter is an EnvoyFilter of one patch of some bytes.
func luaFilter(name, to, context string, bytes int) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n"+
		"metadata: {name: %s, namespace: shop}\nspec:\n  configPatches:\n"+
		"  - {applyTo: %s, match: {context: %s}, patch: {operation: MERGE, value: {name: %s}}}\n", name, to, context, strings.Repeat("x", bytes))
}

// For any number of refused objects of a tenant, an edit causes only its own object, and those whose weight depends on
// it, to be weighed.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestEditWeighsItsObjectAlone(t *testing.T) {
	d := budgetDesk(t, weighed)
	d.step(Objects{put(t, in("other", serviceEntry("a", 256, 40))), synced}) // 10,240 clusters
	const filters = 40
	for i := range filters {
		d.step(Objects{put(t, luaFilter(fmt.Sprint("f", i), "CLUSTER", "ANY", 100_000))})
	}
	d.step(Objects{put(t, serviceEntry("own", 1, 2))})
	d.step(Objects{put(t, subsets("rule", "h0.own.example.com", 10_000))})
	for _, test := range []struct {
		what              string
		event             object.Event
		measured, weighed uint64
	}{
		{"another object", put(t, vs("web", "1s")), 1, 1},
		{"a refused one", put(t, luaFilter("f3", "CLUSTER", "ANY", 100_001)), 1, 1},
		{"another namespace's service", put(t, in("other", serviceEntry("b", 1, 1))), 1, 1},
		{"an edit after it: EnvoyFilters patch what the mesh has", put(t, vs("web", "2s")), 1, 1 + filters},
		{"a further one", put(t, vs("web", "3s")), 1, 1},
		{"the service of the refused rule", put(t, serviceEntry("own", 1, 3)), 1, 1 + 1},
		{"an edit after it", put(t, vs("web", "4s")), 1, 1 + filters},
		{"the rule's service shrinks, and all that is refused has another try", put(t, serviceEntry("own", 1, 1)), 1, 1 + filters + 1},
	} {
		measured, weighed := d.s.inventory.budgets.weights.measured, d.s.inventory.budgets.weights.weighed
		d.step(Objects{test.event})
		if m, w := d.s.inventory.budgets.weights.measured-measured, d.s.inventory.budgets.weights.weighed-weighed; m != test.measured || w != test.weighed {
			t.Errorf("%s: %d records measured and %d weighed, want %d and %d", test.what, m, w, test.measured, test.weighed)
		}
	}
	for i := range filters {
		d.step(Objects{gone(put(t, luaFilter(fmt.Sprint("f", i), "CLUSTER", "ANY", 1)))})
	}
	d.step(Objects{gone(put(t, subsets("rule", "h0.own.example.com", 1)))})
	if w := d.s.inventory.budgets.weights; len(w.offers)+len(w.readers) > 0 {
		t.Errorf("%d offers and %d of what they read are left of nothing", len(w.offers), len(w.readers))
	}
}

// virtualServiceOf is a VirtualService of some routes of its own, and of some that name delegates. Without hosts it is
// a delegate.
func virtualServiceOf(name string, hosts []string, routes int, delegates ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: shop}\nspec:\n", name)
	if len(hosts) > 0 {
		fmt.Fprintf(&b, "  hosts: ['%s']\n", strings.Join(hosts, "', '"))
	}
	b.WriteString("  http:\n")
	for _, d := range delegates {
		fmt.Fprintf(&b, "  - {match: [{uri: {prefix: /%s}}, {uri: {prefix: /}}], delegate: {name: %s}}\n", d, d)
	}
	for i := range routes {
		fmt.Fprintf(&b, "  - {match: [{uri: {prefix: /p%d}}], route: [{destination: {host: web}}]}\n", i)
	}
	return b.String()
}

// A delegate is weighed on its own, in each route that names it, and in each rule; whichever is offered last is
// refused.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestBudgetOfDelegates(t *testing.T) {
	entry := put(t, serviceEntry("a", 1, 250)) // 250 clusters
	host := []string{"h0.a.example.com"}
	root := func(own int, delegates ...string) string { return virtualServiceOf("root", host, own, delegates...) }
	leaf := func(routes int) object.Event { return put(t, virtualServiceOf("leaf", nil, routes)) }
	of := func(namespace, text string) string {
		return strings.ReplaceAll(text, "{name: leaf}", "{name: leaf, namespace: "+namespace+"}")
	}
	for what, test := range map[string]struct {
		events  []object.Event
		refused []string
	}{
		"by itself":          {[]object.Event{leaf(4000)}, []string{"leaf"}},
		"an honest one":      {[]object.Event{entry, put(t, root(1, "leaf")), leaf(3)}, nil},
		"after its root":     {[]object.Event{entry, put(t, root(0, "leaf")), leaf(100)}, []string{"leaf"}},
		"before it":          {[]object.Event{entry, leaf(100), put(t, root(0, "leaf"))}, []string{"root"}},
		"before the service": {[]object.Event{put(t, root(0, "leaf")), leaf(100), entry}, []string{"a"}},
		"named often":        {[]object.Event{leaf(100), put(t, root(0, repeated("leaf", 100)...))}, []string{"root"}},
		"of a gateway": {[]object.Event{leaf(100),
			put(t, strings.Replace(root(0, repeated("leaf", 100)...), "spec:", "spec:\n  gateways: [gw]", 1))}, []string{"root"}},
		"of another namespace's root": {[]object.Event{entry, put(t, of("shop", in("other", root(0, repeated("leaf", 2)...)))), leaf(100)}, nil},
	} {
		d := budgetDesk(t, ofGiB)
		d.step(Objects{synced})
		for _, e := range test.events {
			d.step(Objects{e})
		}
		t.Log(what)
		d.refused(test.refused...)
	}
}

func repeated(name string, n int) []string {
	return slices.Repeat([]string{name}, n)
}

// For any order of adding, growing, shrinking and removing services, rules, delegates and their roots: the admitted
// objects cause at most the budget.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestBudgetHoldsInAnyOrder(t *testing.T) {
	refused := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		d := budgetDesk(t, Budget{Exported: 2})
		d.step(Objects{synced})
		any := func() object.Event {
			n := r.IntN(3)
			host := fmt.Sprintf("h0.e%d.example.com", r.IntN(3))
			if r.IntN(4) == 0 {
				host = "*.example.com"
			}
			switch r.IntN(5) {
			case 0, 1:
				return put(t, serviceEntry(fmt.Sprint("e", n), 1, 1+r.IntN(9)))
			case 2:
				return put(t, subsets(fmt.Sprint("d", n), host, r.IntN(9)))
			case 3:
				return put(t, virtualServiceOf(fmt.Sprint("leaf", n), nil, r.IntN(9)))
			}
			delegates := repeated(fmt.Sprint("leaf", r.IntN(3)), 1+r.IntN(4))
			return put(t, virtualServiceOf(fmt.Sprint("root", n), []string{host}, r.IntN(3), delegates...))
		}
		for range 60 {
			e := any()
			if r.IntN(5) == 0 {
				e = gone(e)
			}
			d.step(Objects{e})
			if kib := becomes(d.s); kib > 2*1024 {
				t.Fatalf("seed %d: after %v it becomes %d KiB", seed, e.ID, kib)
			}
		}
		refused += len(d.problems("refused: with it"))
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// becomes returns the KiB that the applied records cause, at eight for each cluster, subset of a cluster and route of a
// virtual host.
func becomes(s *State) (kib int) {
	clusters, routes, rules := map[string]int{}, map[string]int{}, []model.Record(nil)
	for _, n := range s.inventory.objects.All() {
		for _, r := range n.Entry.records {
			switch t := r.(type) {
			case *model.Service:
				clusters[t.Spec.GetHosts()[0]] = len(t.Spec.GetPorts())
				kib += 8 * len(t.Spec.GetPorts())
			case *model.VirtualService:
				if routes[t.Key.Name] = len(t.Spec.GetHttp()); len(t.Spec.GetHosts()) > 0 {
					rules = append(rules, r)
				}
			case *model.DestinationRule:
				rules = append(rules, r)
			}
		}
	}
	covered := func(host string) (n int) {
		for h, ports := range clusters {
			if domain, is := strings.CutPrefix(host, "*"); h == host || is && strings.HasSuffix(h, domain) {
				n += ports
			}
		}
		return n
	}
	for _, r := range rules {
		switch t := r.(type) {
		case *model.DestinationRule:
			kib += 8 * len(t.Spec.GetSubsets()) * covered(t.Spec.GetHost())
		case *model.VirtualService:
			each := 0
			for _, h := range t.Spec.GetHttp() {
				if to := h.GetDelegate(); to != nil {
					each += len(h.GetMatch()) * routes[to.GetName()]
				} else {
					each++
				}
			}
			kib += 8 * each * covered(t.Spec.GetHosts()[0])
		}
	}
	return kib
}

// The namespace of the mesh configuration, and the root namespace that it names, are no tenants. All other namespaces
// are.
func TestBudgetOfRootNamespace(t *testing.T) {
	d := budgetDesk(t, weighed)
	heavy := func(namespace string) object.Event { return put(t, in(namespace, serviceEntry("e", 256, 256))) }
	rootIs := func(namespace string) object.Event { return put(t, fmt.Sprintf(meshMap, "rootNamespace: "+namespace)) }
	count := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, p := range d.s.Problems() {
			if strings.Contains(p.Message, "refused: with it") {
				got = append(got, p.ID.Namespace)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: refused of %v, want %v", what, got, want)
		}
	}
	d.step(Objects{put(t, fmt.Sprintf(meshMap, "{}")), heavy("istio-system"), heavy("mesh-config"), heavy("istio-config"),
		heavy("shop"), synced})
	count("of no mesh configuration", "istio-config", "mesh-config", "shop")
	d.step(Objects{rootIs("mesh-config")})
	count("of another root", "istio-config", "shop")
	d.step(Objects{rootIs("istio-config")})
	count("of a third: what applies stands", "shop")
	d.step(Objects{put(t, in("mesh-config", serviceEntry("more", 256, 5)))})
	d.refused("more", "e")
}
