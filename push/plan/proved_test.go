package plan

import (
	"testing"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// selectingPayments returns records of each kind with a workload selector, which select the label app: payments.
func selectingPayments(t *testing.T) []model.Record {
	t.Helper()
	const lua = `{"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: secret}}`
	return []model.Record{
		svc(t, "shop/payments", "10.96.0.1", "http:80:HTTP"), svc(t, "shop/web", "10.96.0.2", "http:80:HTTP"),
		rec(t, model.KindSidecar, "shop/s", "{workloadSelector: {labels: {app: payments}}, egress: [{hosts: ['./*']}]}"),
		rec(t, model.KindEnvoyFilter, "shop/f", "{workloadSelector: {labels: {app: payments}}, configPatches: [{applyTo: EXTENSION_CONFIG, patch: {operation: ADD, value: {name: mine, typed_config: "+lua+"}}}]}"),
		rec(t, model.KindWasmPlugin, "shop/w", "{selector: {matchLabels: {app: payments}}, wasm: {url: 'file:///w', pluginConfig: {token: secret}}}"),
		rec(t, model.KindTelemetry, "shop/t", "{selector: {matchLabels: {app: payments}}, accessLogging: [{providers: [{name: envoy}]}]}"),
		rec(t, model.KindPeerAuthentication, "shop/p", "{selector: {app: payments}}"),
		rec(t, model.KindAuthorizationPolicy, "shop/a", "{selector: {app: payments}}"),
		rec(t, model.KindAuthorizationPolicy, "shop/c", "{selector: {app: payments}, closed: true}"),
		rec(t, model.KindRequestAuthentication, "shop/r", "{selector: {app: payments}}"),
		rec(t, model.KindDestinationRule, "shop/d", "{host: web.shop.svc.cluster.local, workloadSelector: {matchLabels: {app: payments}}, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}"),
		rec(t, model.KindVirtualService, "shop/v", "{hosts: [web.shop.svc.cluster.local], http: [{match: [{sourceLabels: {app: payments}}], route: [{destination: {host: payments.shop.svc.cluster.local}}]}]}"),
		rec(t, model.KindWorkload, "shop/web-0", "{source: WORKLOAD_SOURCE_POD, endpoint: {address: 10.1.0.1, serviceAccount: web, workload: web, labels: {app: web}}}"),
		rec(t, model.KindWorkload, "shop/of-another", "{source: WORKLOAD_SOURCE_POD, endpoint: {address: 10.1.0.2, serviceAccount: db, workload: web, labels: {app: web}}}"),
	}
}

// claiming returns a sidecar of shop/web whose node has the labels of payments, with a credential that is bound to a
// Pod.
func claiming(pod string) view.Node {
	n := node("shop", "web-0", "app=payments", "rollouts-pod-template-hash=9")
	n.Caps |= xds.CapLua | xds.CapWasmHTTP | xds.CapIdentity | xds.CapSelfDiscovery
	n.Workload, n.Pod, n.Verified = "payments", pod, view.Identity{Namespace: "shop", Account: "web"}
	return n
}

// A proxy whose credential proves its Pod receives the configuration for the Pod's labels, whatever labels and workload
// its node has: no patches, extension settings, Sidecar, routes or services of another workload of its namespace. The
// node's labels count only if no known Pod is proved.
// Promise: security-workloads.md#what-it-says-of-itself
func TestClaimedLabels(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(selectingPayments(t)...)})
	honest := claiming("")
	honest.Labels, honest.Workload = map[string]string{"app": "web"}, "web"
	want, gained := p.Join(honest).View(), p.Join(claiming("")).View()
	if w := gained.Workload; w.Filters.Len() != 1 || w.Extensions.Len() != 1 || w.Policies.Len() != 1 || !w.Closed || w.Telemetry == (model.Key{}) || w.Sidecar == (model.Key{}) ||
		gained.Inputs.Own.Workload != "payments" || gained.Inputs.Labels.Len() != 1 || w.Peers.Len() != 1 || w.Authentications.Len() != 1 {
		t.Fatalf("the test selects nothing by %+v", gained)
	}
	bound := p.Join(claiming("web-0"))
	got := bound.View()
	got.Secrets = want.Secrets // these name the bound Pod
	if got != want {
		t.Errorf("by claims:\n%+v\nwant\n%+v", got, want)
	}
	if bad := p.Check(bound); len(bad) > 0 {
		t.Error(bad)
	}
	shown := claiming("web-0") // the node as a page of /debug plans it
	shown.ClusterUnproved = true
	if got := p.Join(shown).View(); got.Workload != want.Workload || got.Inputs != want.Inputs || got.Secrets != (view.Identity{}) {
		t.Errorf("on a page:\n%+v\nwant\n%+v", got, want)
	}
	for _, pod := range []string{"gone", "of-another"} {
		if got := p.Join(claiming(pod)).View(); got.Workload != gained.Workload {
			t.Errorf("Pod %s, which is not known as one of the account: %+v", pod, got)
		}
	}
	unproved, elsewhere := claiming("web-0"), claiming("web-0")
	unproved.Verified.Namespace, elsewhere.Cluster = "other", "west"
	for _, n := range []view.Node{unproved, elsewhere} {
		if got := p.Join(n).View(); got.Workload.Filters != gained.Workload.Filters {
			t.Errorf("%v in cluster %q is taken for a Pod of the config cluster: %+v", n.Verified, n.Cluster, got)
		}
	}
}

// The current labels of the Pod apply: an edit of them is planned, also by the fast path, and so are a Pod that is
// added and one that is removed.
// Promise: security-workloads.md#what-it-says-of-itself
func TestLabelsOfThePodChange(t *testing.T) {
	records := selectingPayments(t)
	p := New(Settings{Snapshot: snapshot(records[:len(records)-2]...)})
	h := p.Join(claiming("web-0"))
	pod := func(labels string) model.Record {
		return rec(t, model.KindWorkload, "shop/web-0", "{source: WORKLOAD_SOURCE_POD, endpoint: {address: 10.1.0.1, serviceAccount: web, labels: {"+labels+"}}}")
	}
	for i, step := range []struct {
		put  model.Record // nil: the record is deleted
		slow bool
		want int // the number of patches
	}{
		{pod("app: web"), true, 0}, {pod("app: payments"), true, 1}, {pod("app: payments"), false, 1}, {pod("app: web, tier: x"), true, 0}, {nil, true, 1},
	} {
		var c mirror.Change
		if step.put != nil {
			c = p.Snapshot().Apply(int64(i+2), []model.Record{step.put}, nil)
		} else {
			c = p.Snapshot().Apply(int64(i+2), nil, []model.Key{pod("").Meta().Key})
		}
		_, rest := p.PlanEndpoints(c, false)
		if (len(rest) > 0) != step.slow {
			t.Errorf("step %d: %d edits are not for the fast path alone", i, len(rest))
		}
		if len(rest) > 0 {
			p.Apply(mirror.Change{New: c.New, Edits: rest})
		}
		if got := h.View().Workload.Filters.Len(); got != step.want {
			t.Errorf("step %d: %d patches, want %d", i, got, step.want)
		}
		if bad := p.Check(h); len(bad) > 0 {
			t.Errorf("step %d: %v", i, bad)
		}
	}
}
