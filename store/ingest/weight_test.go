package ingest

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// serviceEntry of hosts by ports, which is exported to all.
func serviceEntry(name string, hosts, ports int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: shop}\nspec:\n  resolution: STATIC\n  hosts:\n", name)
	for i := range hosts {
		fmt.Fprintf(&b, "  - h%d.%s.example.com\n", i, name)
	}
	b.WriteString("  ports:\n")
	for i := range ports {
		fmt.Fprintf(&b, "  - {name: p%d, number: %d, protocol: HTTP}\n", i, 8000+i)
	}
	return b.String()
}

func subsets(name, host string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: shop}\nspec:\n  host: '%s'\n  subsets:\n", name, host)
	for i := range n {
		fmt.Fprintf(&b, "  - {name: v%d, labels: {version: v%d}}\n", i, i)
	}
	return b.String()
}

// weighed has room for some tens of thousands of clusters.
var weighed = Budget{Exported: 512, Own: 512}

// ofGiB has the default bounds of navarchd with 90 % of 1 GiB (cmd/navarchd/memory).
var ofGiB = Budget{Exported: 46, Own: 230}

// The number of resources that an object causes counts, not its bytes: 256 hosts by 256 ports are 65,536 clusters of
// every proxy. An ordinary object with as many hosts is admitted, the last version of one that grows beyond the limit
// stays in effect, and freed capacity is used.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestBudgetOfWeight(t *testing.T) {
	d := budgetDesk(t, weighed)
	d.want(Objects{put(t, serviceEntry("honest", 256, 5)), synced}, "load", "write +ServiceEntry honest")
	d.want(Objects{put(t, serviceEntry("a", 256, 256)), put(t, serviceEntry("b", 256, 256))})
	d.refused("a", "b")
	if got := d.problems("would have 2100 MiB of each replica for exported objects, and 512 are allowed (--tenant-max-exported)"); len(got) != 2 {
		t.Errorf("told %q", d.s.Problems())
	}
	d.want(Objects{put(t, serviceEntry("honest", 256, 256))})
	d.refused("a", "b", "honest")
	if got := d.problems("the previous version stays in effect"); len(got) != 1 {
		t.Errorf("told %q", got)
	}
	d.want(Objects{gone(put(t, serviceEntry("a", 256, 256))), gone(put(t, serviceEntry("b", 256, 256)))})
	d.want(Objects{put(t, in("other", serviceEntry("x", 1, 5)))}, "write +ServiceEntry x")
	d.refused("honest")
	d.want(Objects{put(t, serviceEntry("honest", 256, 5))})
	d.refused()
}

// Rules are weighed by the clusters that they cover, for any order of arrival, and under the next leader as well.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestBudgetOfProducts(t *testing.T) {
	entry := put(t, serviceEntry("a", 1, 250)) // 250 clusters
	rules := []object.Event{entry}
	for i := range 10 { // each makes 10,000 more
		rules = append(rules, put(t, subsets(fmt.Sprint("rule", i), "h0.a.example.com", 40)))
	}
	wide := put(t, subsets("wide", "*.a.example.com", 5000))
	for what, test := range map[string]struct {
		events  []object.Event
		refused []string
	}{
		"rules after":      {[]object.Event{entry, rules[1], rules[2]}, []string{"rule1"}},
		"rules before":     {[]object.Event{rules[1], rules[2], entry}, []string{"a"}},
		"a wildcard after": {[]object.Event{entry, wide}, []string{"wide"}},
		"before":           {[]object.Event{wide, entry}, []string{"a"}},
		"of another":       {[]object.Event{put(t, in("other", subsets("rule", "h0.a.example.com", 400))), entry}, nil},
	} {
		d := budgetDesk(t, weighed)
		d.step(Objects{synced})
		for _, e := range test.events {
			d.step(Objects{e})
		}
		t.Log(what)
		d.refused(test.refused...)
	}
}

// patches is an EnvoyFilter of some patches of all clusters.
func patches(name string, n, bytes int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n"+
		"metadata: {name: %s, namespace: shop}\nspec:\n  configPatches:\n", name)
	for i := range n {
		fmt.Fprintf(&b, "  - {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, "+
			"patch: {operation: MERGE, value: {alt_stat_name: s%d%s}}}\n", i, strings.Repeat("x", bytes))
	}
	return b.String()
}

// An EnvoyFilter is weighed by the resources that it may patch; if their number grows, an applied version stays
// applied.
func TestBudgetOfPatches(t *testing.T) {
	d := budgetDesk(t, weighed)
	d.step(Objects{put(t, in("other", serviceEntry("a", 256, 40))), synced}) // 10,240 clusters
	d.step(Objects{put(t, patches("honest", 10, 100)), put(t, patches("many", 1000, 30)), put(t, patches("large", 10, 20000))})
	d.refused("large", "many")
	d.step(Objects{put(t, in("other", serviceEntry("b", 256, 15)))})
	d.refused("large", "many")
	d.step(Objects{put(t, patches("honest", 10, 100))})
	d.refused("large", "many")
}

// An edit that shrinks is admitted, even if exports of others have made it heavier than the applied version was when it
// was admitted. An edit that grows is refused, until the exports that multiply it are removed.
func TestEditThatShrinksIsTaken(t *testing.T) {
	d := budgetDesk(t, Budget{Own: 20})
	of := func(name string) object.Event { return put(t, in("other", serviceEntry(name, 256, 20))) } // 5,120 clusters
	d.step(Objects{put(t, patches("mine", 10, 1)), of("a"), synced})
	d.step(Objects{put(t, patches("mine", 10, 1)), of("b"), of("c")})
	d.step(Objects{put(t, patches("mine", 11, 1))})
	d.refused("mine")
	d.want(Objects{put(t, patches("mine", 9, 1))}, "write +EnvoyFilter mine")
	d.refused()
	d.step(Objects{put(t, patches("mine", 12, 1))})
	d.refused("mine")
	d.step(Objects{gone(of("a")), gone(of("b")), gone(of("c"))})
	d.step(Objects{put(t, vs("web", "1s"))})
	d.refused()
}

// A VirtualService of a gateway alone is for no host of the mesh, whatever its hosts cover.
func TestBudgetOfGateways(t *testing.T) {
	d := budgetDesk(t, weighed)
	virtualService := func(name, gateway string) string {
		text := fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: shop}\nspec:\n  hosts: ['*']\n  gateways: [%s]\n  http:\n", name, gateway)
		for i := range 20 {
			text += fmt.Sprintf("  - {match: [{uri: {prefix: /p%d}}], route: [{destination: {host: web}}]}\n", i)
		}
		return text
	}
	d.step(Objects{put(t, in("other", serviceEntry("a", 256, 40))), synced}) // 10,240 clusters
	d.step(Objects{put(t, virtualService("ingress", "shop-gateway")), put(t, virtualService("wide", "mesh"))})
	d.refused("wide")
	d.step(Objects{put(t, serviceEntry("own", 20, 5))})
	d.refused("wide")
}

// numbered is the i-th Service of a namespace, s0, s1 ...
func numbered(i int) string {
	return strings.NewReplacer("name: web", fmt.Sprint("name: s", i), "10.0.0.1", fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)).Replace(svc)
}

// Of an attack by subsets a tenant has room for some 1,000 clusters, and not for 20,000.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestBudgetOfSubsets(t *testing.T) {
	d := budgetDesk(t, ofGiB)
	events := []object.Event{synced}
	for i := range 40 {
		name := fmt.Sprint("s", i)
		events = append(events, put(t, numbered(i)), put(t, subsets(name, name, 500)))
	}
	d.step(Objects(events))
	clusters := 0
	for _, r := range d.s.inventory.wanted.records {
		if rule, is := r.(*model.DestinationRule); is {
			clusters += len(rule.Spec.GetSubsets())
		}
	}
	if clusters < 500 || clusters > 1500 {
		t.Errorf("%d clusters", clusters)
	}
}

// A large ordinary namespace fits: 500 Services, each with a DestinationRule of four subsets and a VirtualService of
// three routes, a ServiceEntry for a hundred external hosts, and a default for all hosts of the mesh.
func TestHonestNamespaceHasRoom(t *testing.T) {
	d := budgetDesk(t, ofGiB)
	events := []object.Event{synced, put(t, serviceEntry("egress", 100, 2)), put(t, subsets("default", "*.local", 0)),
		put(t, luaFilter("lua", "HTTP_FILTER", "ANY", 4000))}
	for i := range 500 {
		name := fmt.Sprint("s", i)
		events = append(events, put(t, numbered(i)), put(t, subsets(name, name, 4)), put(t, virtualServiceOf(name, []string{name}, 3)))
	}
	d.step(Objects(events))
	d.refused()
	if got := d.problems("is near the limit"); len(got) > 0 {
		t.Error(got)
	}
}

// selecting returns a ServiceEntry whose endpoints are WorkloadEntries.
func selecting(name string, hosts, ports int) string {
	return strings.Replace(serviceEntry(name, hosts, ports), "spec:", "spec:\n  workloadSelector: {labels: {app: vm}}", 1)
}

// Of an attack by ServiceEntries that all select a thousand machines there is no room for the most part, whichever come
// first; there is for a few.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestBudgetOfSelected(t *testing.T) {
	var machines, entries []object.Event
	for i := range 1000 {
		machines = append(machines, put(t, fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\n"+
			"metadata: {name: m%d, namespace: shop}\nspec: {address: 10.1.%d.%d, labels: {app: vm}}", i, i/250, i%250+1)))
	}
	for i := range 184 {
		entries = append(entries, put(t, selecting(fmt.Sprint("e", i), 32, 1)))
	}
	few := []object.Event{put(t, selecting("a", 1, 2)), put(t, selecting("b", 1, 1)), put(t, selecting("c", 2, 2))}
	for what, test := range map[string]struct {
		first, then []object.Event
		refused     bool
	}{
		"machines first": {machines, entries, true},
		"entries first":  {entries, machines, true},
		"a few":          {machines, few, false},
		"a few first":    {few, machines, false},
	} {
		d := budgetDesk(t, ofGiB)
		d.step(Objects{synced})
		d.step(Objects(test.first))
		d.step(Objects(test.then))
		if n := len(d.problems("refused: with it")); test.refused != (n > 100) || !test.refused && n > 0 {
			t.Errorf("%s: %d are refused", what, n)
		}
		hosts, apply := 0, 0
		for _, r := range d.s.inventory.wanted.records {
			switch t := r.(type) {
			case *model.Service:
				hosts += len(t.Spec.GetHosts())
			case *model.Workload:
				apply++
			}
		}
		if n := hosts * apply; n > 46*1024*8 {
			t.Errorf("%s: %d endpoints without room", what, n)
		}
	}
}
