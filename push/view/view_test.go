package view

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// rec returns a record named namespace/name@created.
func rec(t testing.TB, kind model.Kind, name, text string) model.Record {
	t.Helper()
	body := map[model.Kind]proto.Message{model.KindSidecar: &networkingv1.Sidecar{}, model.KindEnvoyFilter: &networkingv1.EnvoyFilter{},
		model.KindVirtualService: &networkingv1.VirtualService{}, model.KindDestinationRule: &networkingv1.DestinationRule{}, model.KindService: &model.ServiceSpec{}, model.KindServiceEntry: &model.ServiceSpec{},
		model.KindEndpoints: &model.EndpointsSpec{}, model.KindTelemetry: &telemetryv1.Telemetry{}, model.KindMesh: &meshv1.MeshConfig{},
		model.KindGateway: &networkingv1.Gateway{}, model.KindNetworkGateways: &model.NetworkGatewaysSpec{}}[kind]
	if body == nil {
		body = &model.PolicySpec{}
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, body)
	}
	if err != nil {
		t.Fatal(err)
	}
	var created int64
	name, at, _ := strings.Cut(name, "@")
	fmt.Sscan(at, &created)
	namespace, short, _ := strings.Cut(name, "/")
	r, err := model.New(model.Key{Kind: kind, Namespace: namespace, Name: short}, created, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func snapshot(records ...model.Record) *mirror.Snapshot {
	return mirror.Empty().Apply(1, records, nil).New
}

func web(labels ...string) Node {
	n := Node{ID: "x", Name: "web-1", Namespace: "shop", Domain: DefaultDomain, Addresses: []string{"10.1.0.7"}, Version: "1.31.0", Caps: xds.StockCaps,
		Labels: map[string]string{"app": "web"}, Metadata: map[string]string{"CLUSTER_ID": "Kubernetes"}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		n.Labels[k] = v
	}
	return n
}

func TestSidecar(t *testing.T) {
	selecting := "workloadSelector: {labels: {app: web}}"
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"istio-system/root"}, "istio-system/root"},
		{[]string{"istio-system/root", "shop/all"}, "shop/all"},
		{[]string{"istio-system/root", "shop/all@1", "shop/web@2"}, "shop/web"},
		{[]string{"shop/web@2", "shop/web2@1"}, "shop/web2"},
		{[]string{"shop/all@2", "shop/all0@1"}, "shop/all0"},
		// A Sidecar of the root namespace with a selector selects the proxies of the root namespace only.
		{[]string{"istio-system/web", "else/all"}, ""},
		{[]string{"shop/none"}, ""},
	} {
		var records []model.Record
		for _, name := range c.names {
			text := "{}"
			if strings.Contains(name, "web") {
				text = selecting
			} else if strings.Contains(name, "none") {
				text = "workloadSelector: {labels: {app: other}}"
			}
			records = append(records, rec(t, model.KindSidecar, name, text))
		}
		v := Of(snapshot(records...), web())
		got := strings.TrimPrefix(v.Scope.Sidecar.Namespace+"/"+v.Scope.Sidecar.Name, "/")
		if got != c.want || v.Workload.Sidecar != v.Scope.Sidecar {
			t.Errorf("of %v applies %q, want %q", c.names, got, c.want)
		}
	}
}

func TestFilters(t *testing.T) {
	filter := func(name, more string, contexts ...string) model.Record {
		text := more + "\nconfigPatches:\n"
		for _, c := range contexts {
			text += "- {applyTo: CLUSTER, match: {" + c + "}, patch: {operation: MERGE}}\n"
		}
		return rec(t, model.KindEnvoyFilter, name, text)
	}
	s := snapshot(
		filter("shop/late@9", "priority: 5", "context: ANY"), filter("shop/early@1", "priority: -5", "context: ANY"), filter("shop/young@3", "", "context: ANY"), filter("shop/old@2", "", "context: ANY"),
		filter("istio-system/lower@99", "priority: -6", "context: ANY"), filter("istio-system/equal@99", "priority: -5", "context: ANY"),
		filter("shop/old-b@2", "", "context: ANY"),
		filter("istio-system/root@99", "priority: 99", "context: SIDECAR_OUTBOUND", "context: SIDECAR_INBOUND", "context: GATEWAY"),
		filter("shop/other", "workloadSelector: {labels: {app: other}}", "context: ANY"),
		filter("else/x", "", "context: ANY"),
		filter("shop/zversion@4", "", "context: SIDECAR_OUTBOUND, proxy: {proxyVersion: '^1\\.31.*'}", "context: SIDECAR_OUTBOUND, proxy: {proxyVersion: '^1\\.2.*'}",
			"context: SIDECAR_OUTBOUND, proxy: {metadata: {CLUSTER_ID: Kubernetes}}", "context: SIDECAR_OUTBOUND, proxy: {metadata: {CLUSTER_ID: other}}", "proxy: {proxyVersion: '('}"),
		filter("shop/refs", "targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: x}]", "context: ANY"),
	)
	show := func(all []Patch) string {
		var out []string
		for _, p := range all {
			out = append(out, fmt.Sprintf("%s.%d", p.Filter.Name, p.Index))
		}
		return strings.Join(out, " ")
	}
	v := Of(s, web())
	if got := show(v.Scope.Filters.All()); got != "lower.0 equal.0 early.0 old-b.0 old.0 young.0 zversion.0 zversion.2 late.0 root.0" {
		t.Errorf("outbound: %s", got)
	}
	if got := show(v.Workload.Filters.All()); got != "lower.0 equal.0 early.0 old-b.0 old.0 young.0 late.0 root.1" {
		t.Errorf("inbound: %s", got)
	}
}

// An EnvoyFilter's patches are part of a proxy's scope layer or workload layer. Patches of whole resources are part of
// a sidecar's workload layer; of a gateway's, only patches of the bootstrap are.
func TestLayersOfFilters(t *testing.T) {
	for text, want := range map[string][2]string{ // the layers of a sidecar, and of a gateway
		"applyTo: CLUSTER": {"scope workload", "scope"},
		"applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}": {"scope", ""},
		"applyTo: CLUSTER, match: {context: SIDECAR_INBOUND}":  {"workload", ""},
		"applyTo: CLUSTER, match: {context: GATEWAY}":          {"", "scope"},
		"applyTo: EXTENSION_CONFIG, match: {context: GATEWAY}": {"workload", "scope"},
		"applyTo: BOOTSTRAP":                                                {"workload", "workload"},
		"applyTo: BOOTSTRAP, match: {context: GATEWAY}":                     {"workload", "workload"},
		"applyTo: BOOTSTRAP, match: {context: SIDECAR_INBOUND}":             {"workload", "workload"},
		"applyTo: BOOTSTRAP, match: {proxy: {proxyVersion: '^1\\.2[0-9]'}}": {"", ""},
	} {
		s := snapshot(rec(t, model.KindEnvoyFilter, "shop/f", "configPatches: [{"+text+", patch: {operation: MERGE}}]"))
		for i, kind := range []Kind{Sidecar, Router} {
			n := web()
			n.Kind = kind
			v := Of(s, n)
			var got []string
			if v.Scope.Filters.Len() > 0 {
				got = append(got, "scope")
			}
			if v.Workload.Filters.Len() > 0 {
				got = append(got, "workload")
			}
			if strings.Join(got, " ") != want[i] {
				t.Errorf("%s, of kind %d: %v, want %s", text, kind, got, want[i])
			}
		}
	}
}

// A view contains nothing that identifies a proxy, so that replicas of a workload share one view. A difference that
// changes resources gives another view.
func TestViewHasNoIdentity(t *testing.T) {
	s := snapshot(
		rec(t, model.KindService, "shop/web", "{hosts: [web], selector: {app: web}, ports: [{number: 80, protocol: PROTOCOL_HTTP}]}"),
		rec(t, model.KindService, "shop/db", "{hosts: [db], headless: true, selector: {app: db}, ports: [{number: 5432, protocol: PROTOCOL_TCP}]}"),
		rec(t, model.KindVirtualService, "shop/v", "http: [{match: [{sourceLabels: {tier: x}}]}]"),
		rec(t, model.KindAuthorizationPolicy, "shop/p", "{closed: true, selector: {app: closed}}"))
	base := Of(s, web())
	other := web("pod-template-hash=77")
	other.ID, other.Name, other.Addresses = "y", "web-2", []string{"10.1.0.8"}
	if Of(s, other) != base {
		t.Error("two pods of one workload have two views")
	}
	if v := Of(s, web("tier=x")); v == base || v.Scope != base.Scope || v.Inputs.Labels.All()[0] != "tier=x" || v.Workload != base.Workload {
		t.Errorf("a label that a rule reads: %+v", v)
	}
	if v := Of(s, web("app=db")); v.Scope != base.Scope || v.Workload == base.Workload || v.Addresses.Len() != 1 {
		t.Errorf("a headless TCP service: %+v", v)
	}
	if v := Of(s, web("app=closed")); !v.Workload.Closed || v.Workload.Services.Len() != 0 {
		t.Errorf("a closed policy: %+v", v)
	}
	app := web("security.istio.io/tlsMode=istio")
	app.Kind, app.Mode = Proxyless, None
	if v := Of(s, app); v.Scope == base.Scope || v.Scope.String() == base.Scope.String() || !v.Workload.Labelled || v.Workload.Kind != Proxyless {
		t.Errorf("an application with gRPC's own client: %+v", v)
	}
	elsewhere := web()
	elsewhere.Namespace = "else"
	if v := Of(s, elsewhere); v.Scope == base.Scope || v.Scope.String() == base.Scope.String() || v.Workload.Services.Len() != 0 {
		t.Errorf("another namespace: %+v", v)
	}
}

// PeerAuthentications of the root namespace apply to all proxies if they have no selector; AuthorizationPolicies also
// apply to all proxies that their selector selects.
func TestClosed(t *testing.T) {
	for _, c := range []struct {
		kind model.Kind
		name string
		text string
		want bool
	}{
		{model.KindPeerAuthentication, "shop/a", "{closed: true}", true},
		{model.KindPeerAuthentication, "shop/a", "{closed: false}", false},
		{model.KindPeerAuthentication, "else/a", "{closed: true}", false},
		{model.KindPeerAuthentication, "istio-system/a", "{closed: true, meshWide: true}", true},
		{model.KindPeerAuthentication, "istio-system/a", "{closed: true, selector: {app: web}}", false},
		{model.KindAuthorizationPolicy, "istio-system/a", "{closed: true, selector: {app: web}}", true},
		{model.KindAuthorizationPolicy, "istio-system/a", "{closed: true, selector: {app: db}}", false},
		{model.KindRequestAuthentication, "shop/a", "{closed: true, selector: {app: web}}", true},
		{model.KindRequestAuthentication, "else/a", "{closed: true}", false},
		{model.KindRequestAuthentication, "istio-system/a", "{closed: true, selector: {app: web}}", true},
		{model.KindRequestAuthentication, "istio-system/a", "{closed: true, selector: {app: db}}", false},
	} {
		if got := Of(snapshot(rec(t, c.kind, c.name, c.text)), web()).Workload.Closed; got != c.want {
			t.Errorf("%v %s %s: closed %v, want %v", c.kind, c.name, c.text, got, c.want)
		}
	}
}

// A policy with Gateways applies to the proxies of its own namespace that state one of these Gateways by their label,
// and to no others, whatever its selector.
func TestPoliciesOfGateways(t *testing.T) {
	for _, c := range []struct {
		name, text string
		labels     []string
		applies    bool
	}{
		{"shop/a", "{gateways: [front]}", []string{model.GatewayName + "=front"}, true},
		{"shop/a", "{gateways: [other, front], selector: {" + model.GatewayName + ": other}}", []string{model.GatewayName + "=front"}, true},
		{"shop/a", "{gateways: [other]}", []string{model.GatewayName + "=front"}, false},
		{"shop/a", "{gateways: [front]}", nil, false},
		{"istio-system/a", "{gateways: [front]}", []string{model.GatewayName + "=front"}, false},
		{"else/a", "{gateways: [front]}", []string{model.GatewayName + "=front"}, false},
	} {
		for _, n := range []Node{web(c.labels...), router()} {
			if n.Labels = web(c.labels...).Labels; n.Kind == Router {
				n.Namespace = "shop"
			}
			for _, kind := range []model.Kind{model.KindAuthorizationPolicy, model.KindRequestAuthentication} {
				v := Of(snapshot(rec(t, kind, c.name, c.text)), n)
				w := v.Workload
				if n.Kind == Router {
					w = v.Scope.Edge.Value().Workload
				}
				if got := w.Policies.Len()+w.Authentications.Len() == 1; got != c.applies {
					t.Errorf("%v %s %s at labels %v: applies %v", kind, c.name, c.text, c.labels, got)
				}
			}
		}
	}
}

// The RequestAuthentications that select a proxy: those of the root namespace first, within a namespace the oldest
// first. A record that does not select the proxy, or whose namespace is closed to it, does not change the view.
func TestAuthentications(t *testing.T) {
	tokens := func(name, text string) model.Record {
		return rec(t, model.KindRequestAuthentication, name, text)
	}
	none := Of(snapshot(), web())
	if v := Of(snapshot(tokens("shop/a", "{selector: {app: db}}"), tokens("else/b", "{}")), web()); v != none {
		t.Errorf("policies that do not select the proxy: %+v", v.Workload)
	}
	v := Of(snapshot(tokens("shop/b@1", "{selector: {app: web}}"), tokens("shop/a@2", "{}"), tokens("istio-system/z@3", "{selector: {app: web}}"), tokens("istio-system/y@4", "{selector: {app: db}}"),
		tokens("shop/closed@1", "{closed: true}")), web())
	var names []string
	for _, key := range v.Workload.Authentications.All() {
		names = append(names, key.Namespace+"/"+key.Name)
	}
	if got := fmt.Sprint(names); got != "[istio-system/z shop/b shop/a]" {
		t.Errorf("they are %s", got)
	}
	if v.Scope != none.Scope || v.Inputs != none.Inputs {
		t.Error("the outbound side is another")
	}
}

// After each edit the index returns the view that is computed from scratch for each node, and it reports every node
// whose view may have changed.
func TestIndexFollows(t *testing.T) {
	source := func(name, labels string) model.Record {
		return rec(t, model.KindVirtualService, "shop/"+name, "http: [{match: [{sourceLabels: {"+labels+"}}]}]")
	}
	rule := func(text string) model.Record { return rec(t, model.KindDestinationRule, "shop/r", "host: x\n"+text) }
	one, two := source("a", "tier: x, app: web"), source("b", "tier: x")
	selector, other := rule("workloadSelector: {matchLabels: {tier: w}}"), rule("workloadSelector: {matchLabels: {tier: z}}")
	place := rule("subsets: [{name: s, trafficPolicy: {portLevelSettings: [{port: {number: 80}, outlierDetection: {interval: 3s}}]}}]")
	zones := rule("trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {enabled: true}}}")
	compared := rule("trafficPolicy: {loadBalancer: {localityLbSetting: {failoverPriority: [tier, 'zone=a']}}}")
	x, s := NewIndex(mirror.Empty()), mirror.Empty()
	for i, step := range []struct {
		edit    mirror.Edit
		differs bool
	}{
		{mirror.Edit{New: one}, true}, {mirror.Edit{New: two}, false}, {mirror.Edit{Old: one}, true}, {mirror.Edit{New: selector}, true},
		{mirror.Edit{Old: selector, New: other}, true}, {mirror.Edit{Old: other, New: place}, true}, {mirror.Edit{Old: place, New: compared}, true},
		{mirror.Edit{Old: two}, true}, {mirror.Edit{Old: compared, New: zones}, true}, {mirror.Edit{Old: zones}, true},
	} {
		if x.Apply(step.edit) != step.differs {
			t.Errorf("step %d: says %v that other inputs are read", i, !step.differs)
		}
		if step.edit.New != nil {
			s = s.Apply(int64(i+1), []model.Record{step.edit.New}, nil).New
		} else {
			s = s.Apply(int64(i+1), nil, []model.Key{step.edit.Old.Meta().Key}).New
		}
		for _, tier := range []string{"x", "w", "z", "q"} {
			n := web("tier=" + tier)
			n.Locality = "r/z"
			if got, want := x.View(s, n).Inputs, Of(s, n).Inputs; got != want {
				t.Errorf("step %d: %v, read from scratch %v", i, got, want)
			}
		}
	}
	if len(x.named)+len(x.compared)+x.localities+x.zones != 0 {
		t.Errorf("left: %+v", x)
	}
}

// A proxy's own workload is the one of the oldest service that selects it, in the proxy's region and its generation of
// Pods; a proxy that no service selects has no own workload.
func TestOwnWorkload(t *testing.T) {
	s := snapshot(rec(t, model.KindService, "shop/web@1", "{hosts: [web.shop], selector: {app: web}}"), rec(t, model.KindService, "shop/all@2", "{hosts: [all.shop], selector: {app: web}}"))
	n := web("rollouts-pod-template-hash=5d4f")
	n.Workload, n.Locality = "web", "harbour/west"
	if v := Of(s, n); v.Inputs != (Inputs{}) {
		t.Errorf("who does not know its own cluster: %+v", v.Inputs)
	}
	n.Caps |= xds.CapSelfDiscovery
	v := Of(s, n)
	own := v.Inputs.Own
	if own.Service.Name != "web" || v.Workload != Of(s, web("rollouts-pod-template-hash=5d4f")).Workload {
		t.Errorf("own %+v, workload %+v", own, v.Workload)
	}
	is := func(workload, locality, hash string) bool {
		return own.Has(&model.Endpoint{Workload: workload, Locality: locality, Labels: map[string]string{"rollouts-pod-template-hash": hash}})
	}
	for what, has := range map[string]bool{"its zone": is("web", "harbour/west", "5d4f"), "another zone": is("web", "harbour/east", "5d4f"), "another region": !is("web", "island/west", "5d4f"),
		"another workload": !is("canary", "harbour/west", "5d4f"), "another generation": !is("web", "harbour/west", "77aa")} {
		if !has {
			t.Error(what)
		}
	}
	if lone := Of(snapshot(), n); lone.Inputs.Own != (Own{}) {
		t.Errorf("no service selects it: %+v", lone.Inputs.Own)
	}
	zones := rec(t, model.KindDestinationRule, "shop/r", "{host: x, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {enabled: true}}}}")
	if v := Of(snapshot(zones), n); v.Inputs.Locality != "harbour/west" {
		t.Errorf("the place of a zone-aware proxy: %+v", v.Inputs)
	}
	if n.Caps &^= xds.CapSelfDiscovery; Of(snapshot(zones), n).Inputs != (Inputs{}) {
		t.Error("the setting is read for who is not zone-aware")
	}
}

// A label's value is part of a view only if a rule names this value: the number of views does not grow with the number
// of values.
func TestOnlyNamedValuesAreInputs(t *testing.T) {
	s := snapshot(rec(t, model.KindDestinationRule, "shop/r", "{host: x, workloadSelector: {matchLabels: {tier: x}}}"))
	if a, b := Of(s, web("tier=w")), Of(s, web("tier=z")); a != b || a.Inputs != (Inputs{}) {
		t.Errorf("%v and %v", a.Inputs, b.Inputs)
	}
	if v := Of(s, web("tier=x")); !v.Inputs.Match(map[string]string{"tier": "x"}) || v.Inputs.Match(map[string]string{"tier": "x", "app": "web"}) {
		t.Errorf("%v", v.Inputs)
	}
}
