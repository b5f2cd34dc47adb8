package plan

import (
	"slices"
	"testing"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// When the traffic distribution of a ServiceEntry starts to read the locality, the views of proxies of other namespaces
// change, too: without this cell of the table of effects the oracle finds wrong assignments.
func TestPlacesOfServiceEntries(t *testing.T) {
	entry := func(distribution string) model.Record {
		return rec(t, model.KindServiceEntry, "b/e", "hosts: [e.example]\nexportTo: ['*']\nresolution: RESOLUTION_EDS\n"+distribution+"ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]")
	}
	endpoints := rec(t, model.KindEndpoints, "b/"+model.ServiceEntryPrefix+"e", "hosts: [e.example]\nports: [{name: http, number: 80}]\n"+
		"endpoints: [{address: 10.9.0.1, locality: r1/z1, namespace: b, health: HEALTH_READY}, {address: 10.9.0.2, locality: r2/z1, namespace: b, health: HEALTH_READY}]")
	struck := affects
	struck[model.KindServiceEntry] = slices.Clone(affects[model.KindServiceEntry])
	for i, e := range struck[model.KindServiceEntry] {
		if e.name == "places" {
			struck[model.KindServiceEntry][i].units = func(*change, input.Types, mirror.Edit) {}
		}
	}
	for name, c := range map[string]struct {
		table *[model.NumKinds][]effect
		wrong bool
	}{"as it is": {&affects, false}, "struck": {&struck, true}} {
		p := New(Settings{Snapshot: snapshot(entry(""), endpoints)})
		p.table = c.table
		n := node("a", "x")
		n.Locality = "r1/z1"
		h := p.Join(n)
		p.Apply(p.Snapshot().Apply(2, []model.Record{entry("distribution: DISTRIBUTION_SAME_ZONE\n")}, nil))
		if bad := p.Check(h); (len(bad) > 0) != c.wrong {
			t.Errorf("%s: %v", name, bad)
		}
	}
}

// When a TrafficExtension selects by a label that no selector has read before, proxies of all namespaces that are bound
// to Pods with this label have another identity: without this cell of the table of effects they keep the previous one.
func TestPodsOfTrafficExtensions(t *testing.T) {
	ext := func(selector string) model.Record {
		return rec(t, model.KindTrafficExtension, "other/p", "{selector: {matchLabels: {"+selector+"}}, wasm: {url: 'oci://r.example/m', imagePullSecret: pull}}")
	}
	struck := affects
	struck[model.KindTrafficExtension] = slices.Clone(affects[model.KindTrafficExtension])
	for i, e := range struck[model.KindTrafficExtension] {
		if e.name == "Pods" {
			struck[model.KindTrafficExtension][i].units = func(*change, input.Types, mirror.Edit) {}
		}
	}
	for name, c := range map[string]struct {
		table *[model.NumKinds][]effect
		wrong bool
	}{"as it is": {&affects, false}, "struck": {&struck, true}} {
		p := New(Settings{Snapshot: snapshot(ext(""), pullSecret(t, "shop/pull", "r.example", "MQ=="), workloadOf(t, "shop/web-1", "web", "app: web"))})
		p.table = c.table
		n := fetcher("shop", "shop", "app=web")
		n.Pod = "web-1"
		h := p.Join(n)
		p.Apply(p.Snapshot().Apply(2, []model.Record{ext("app: web")}, nil))
		if wrong := p.viewOf(*h.Node).Secrets != h.View().Secrets; wrong != c.wrong {
			t.Errorf("%s: the proxy's identity is %v", name, h.View().Secrets)
		}
	}
}
