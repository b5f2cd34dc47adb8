//go:build !race

package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/store/model"
)

// together is a bootstrap with the sets of several proxies. Each proxy's listeners have addresses of their own, and
// names that begin with the proxy's.
type together struct {
	t         testing.TB
	static    map[string][]any
	seen      map[string]bool // resources as text, and the names of clusters and secrets
	addresses map[any]int     // last bytes of listeners' addresses
	proxies   int
}

func newTogether(t testing.TB) *together {
	return &together{t: t, static: map[string][]any{"secrets": {}}, seen: map[string]bool{}, addresses: map[any]int{}}
}

// add adds the set of a proxy. Clusters and secrets that are in the bootstrap already are not added again; another
// cluster of the name gets a name of its own, so that Envoy judges it too.
func (b *together) add(proxy string, set *manifest.Set) {
	static := envoytest.JSON(b.t, fold(b.t, set))["static_resources"].(map[string]any)
	for _, l := range static["listeners"].([]any) {
		l := l.(map[string]any)
		socket, is := l["address"].(map[string]any)["socketAddress"].(map[string]any)
		if !is {
			b.t.Fatalf("%s: the address of %v", proxy, l)
		}
		if _, known := b.addresses[socket["address"]]; !known {
			b.addresses[socket["address"]] = len(b.addresses) + 1
		}
		l["name"] = proxy + " " + l["name"].(string)
		socket["address"] = fmt.Sprintf("10.%d.%d.%d", b.proxies/200, b.proxies%200, b.addresses[socket["address"]])
		b.static["listeners"] = append(b.static["listeners"], l)
	}
	b.proxies++
	for _, kind := range []string{"clusters", "secrets"} {
		for i, r := range static[kind].([]any) {
			r := r.(map[string]any)
			text, err := json.Marshal(r)
			if err != nil {
				b.t.Fatal(err)
			}
			name := kind + r["name"].(string)
			if b.seen[name] && b.seen[string(text)] || kind == "secrets" && b.seen[name] {
				continue
			}
			if b.seen[name] {
				r["name"] = fmt.Sprintf("%s %d %s", proxy, i, r["name"])
			}
			b.seen[name], b.seen[string(text)] = true, true
			b.static[kind] = append(b.static[kind], r)
		}
	}
}

// complaint returns why Envoy refuses the bootstrap; empty: it accepts it.
func (b *together) complaint(envoy string) string {
	return envoytest.Validate(envoy, envoytest.File(b.t, envoytest.Bootstrap{
		"node": map[string]any{"id": "x", "cluster": "x"}, "static_resources": b.static}))
}

// TestEnvoyTakesCollidingGateways: a real Envoy accepts all listeners of random meshes whose Gateways collide. Each row
// of the merge table has the outcome that the table states.
// Promise: security-gateways.md#make-a-gateway-fail
func TestEnvoyTakesCollidingGateways(t *testing.T) {
	envoy := envoytest.Binary(t)
	const batch = 15 // in one bootstrap
	meshes := batch * max(1, *histories/6)
	seen := map[string]int{}
	var all *together
	for i := range meshes {
		if i%batch == 0 {
			all = newTogether(t)
		}
		m := newFrontedMesh(t, firstAsked+100+uint64(i))
		p := New(Settings{Snapshot: snapshot(slices.Collect(maps.Values(m.records))...)})
		for j, n := range m.nodes {
			h := p.Join(n)
			if j == 0 {
				m.counted(t, p, h.Set(), seen)
			}
			all.add(fmt.Sprintf("%d/%s", i, n.Name), h.Set())
		}
		if i%batch == batch-1 {
			seen["listeners"] += len(all.static["listeners"])
			if complaint := all.complaint(envoy); complaint != "" {
				t.Errorf("meshes to %d: %s", i, complaint)
			}
		}
	}
	t.Logf("%d listeners of %d meshes, %d of %d random servers collide", seen["listeners"], meshes, seen["collide"], seen["servers"])
	if seen["collide"]*10 < 3*seen["servers"] {
		t.Errorf("%d of %d random servers collide, want 30 %%", seen["collide"], seen["servers"])
	}
	for _, row := range mergeRows {
		if seen[row.name] < 50 {
			t.Errorf("%d times the outcome of %q, want 50", seen[row.name], row.name)
		}
	}
}

// unmerge puts the filter chains of all listeners of one name in the first of these listeners, equal chains once.
func (b *together) unmerge() {
	type object = map[string]any
	first := map[any]object{}
	var kept []any
	seen := map[string]bool{}
	for _, l := range b.static["listeners"] {
		l := l.(object)
		chains, _ := l["filterChains"].([]any)
		l["filterChains"] = []any(nil)
		if first[l["name"]] == nil {
			first[l["name"]] = l
			kept = append(kept, l)
		}
		into := first[l["name"]]
		for _, c := range chains {
			text, err := json.Marshal(c)
			if err != nil {
				b.t.Fatal(err)
			}
			if key := fmt.Sprint(l["name"], string(text)); !seen[key] {
				seen[key] = true
				into["filterChains"] = append(into["filterChains"].([]any), c)
			}
		}
	}
	b.static["listeners"] = kept
}

// TestEnvoyRefusesUnmergedGateways: without the comparison of servers, with the filter chains that each Gateway has by
// itself in one listener, Envoy refuses the meshes.
// Promise: security-gateways.md#make-a-gateway-fail
func TestEnvoyRefusesUnmergedGateways(t *testing.T) {
	envoy := envoytest.Binary(t)
	for i := range 2 {
		m := newFrontedMesh(t, firstAsked+100+uint64(i))
		var others []model.Record
		for key, r := range m.records {
			if key.Kind != model.KindGateway {
				others = append(others, r)
			}
		}
		all := newTogether(t)
		for _, f := range m.fronts {
			p := New(Settings{Snapshot: snapshot(append(slices.Clone(others), f.record(t))...)})
			all.add("gateway", p.Join(m.nodes[0]).Set())
			all.proxies = 0
		}
		all.unmerge()
		if complaint := all.complaint(envoy); !strings.Contains(complaint, "matching rules") {
			t.Errorf("mesh %d: Envoy says %q", i, complaint)
		}
	}
}
