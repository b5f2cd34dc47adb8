package plan

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// own returns the names of the resources in which one proxy differs from others of its scope.
func own(h *Handle) (out []string) {
	for t := range xds.NumTypes {
		for r := range h.Set().Types[t][manifest.Variant].All() {
			out = append(out, t.Noun()+" "+r.Name)
		}
	}
	return out
}

// Proxies of two networks have one scope. If no rule reads the network, all resources are the same values; if a rule of
// 1 of 20 services reads it, only the assignments of this service differ.
func TestOnlyEntriesThatCompareTheNetworkSplit(t *testing.T) {
	const services, priority = 20, "trafficPolicy: {outlierDetection: {consecutive5xxErrors: 5}, loadBalancer: {localityLbSetting: {failoverPriority: [topology.istio.io/network]}}}"
	p, shared, handles := bigPlanner(t, services, 1)
	host := "s10.ns1.svc.cluster.local"
	p.Apply(p.Snapshot().Apply(2, []model.Record{rec(t, model.KindEndpoints, "ns1/s10-1", "hosts: ["+host+"]\nports: [{name: http, number: 8080}, {name: raw, number: 9000}]\n"+
		"endpoints: [{address: 10.9.0.1, network: n1, namespace: ns1, health: HEALTH_READY}, {address: 10.9.0.2, network: n2, namespace: ns1, health: HEALTH_READY}]")}, nil))
	var others []*Handle
	built := measure(shared, func() {
		for _, network := range []string{"n1", "n2"} {
			n := node("ns0", "of-"+network)
			n.Network = network
			others = append(others, p.Join(n))
		}
	})
	if built != (work{}) || len(p.scopes) != 1 || len(own(others[0])) != 0 || others[0].View() != handles[0].View() {
		t.Errorf("built %+v for proxies of other networks, and there are %d scopes", built, len(p.scopes))
	}
	for revision, rules := range [][]model.Record{{rec(t, model.KindDestinationRule, "ns0/rule", "host: "+host+"\n"+priority)}, nil} {
		var gone []model.Key
		if rules == nil {
			gone = []model.Key{{Kind: model.KindDestinationRule, Namespace: "ns0", Name: "rule"}}
		}
		p.Apply(p.Snapshot().Apply(int64(revision+3), rules, gone))
		for i, h := range others {
			want := map[bool]string{true: fmt.Sprintf("endpoint outbound|80||%s endpoint outbound|9000||%s", host, host)}[rules != nil]
			if got := strings.Join(own(h), " "); got != want {
				t.Errorf("%s: its own are %q, want %q", h.Node.Name, got, want)
			}
			if got, want := addresses(t, h.Set(), "outbound|80||"+host), []string{"10.9.0.1:8080 10.9.0.2:8080", "10.9.0.2:8080 10.9.0.1:8080"}[i]; rules != nil && got != want {
				t.Errorf("%s: %s, want %s", h.Node.Name, got, want)
			}
			if bad := p.Check(h); len(bad) > 0 || len(p.scopes) != 1 {
				t.Errorf("%s: %v, %d scopes", h.Node.Name, bad, len(p.scopes))
			}
		}
	}
}

// A changed endpoint reaches proxies of each place by the fast path, with its priority for that place.
func TestFastPathOfVariants(t *testing.T) {
	service := svc(t, "ns0/s", "10.0.0.1", "http:80:HTTP")
	slice := func(health string) model.Record {
		return rec(t, model.KindEndpoints, "ns0/s-1", "hosts: [s.ns0.svc.cluster.local]\nports: [{name: http, number: 8080}]\n"+
			"endpoints: [{address: 10.9.0.1, locality: r1, namespace: ns0, health: HEALTH_READY}, {address: 10.9.0.2, locality: r2, namespace: ns0, health: "+health+"}]")
	}
	p := New(Settings{Snapshot: snapshot(service, slice("HEALTH_NOT_READY"),
		rec(t, model.KindDestinationRule, "ns0/r", "host: s.ns0.svc.cluster.local\ntrafficPolicy: {outlierDetection: {consecutive5xxErrors: 5}}"))})
	var handles []*Handle
	for _, locality := range []string{"", "r1", "r2"} {
		n := node("ns0", "at-"+locality)
		n.Locality = locality
		handles = append(handles, p.Join(n))
	}
	moved, rest := p.PlanEndpoints(p.Snapshot().Apply(2, []model.Record{slice("HEALTH_READY")}, nil), false)
	if len(moved) != 3 || len(rest) != 0 {
		t.Fatalf("%d moved, %d edits wait for configuration", len(moved), len(rest))
	}
	for i, want := range []string{"10.9.0.1:8080 10.9.0.2:8080", "10.9.0.1:8080 10.9.0.2:8080", "10.9.0.2:8080 10.9.0.1:8080"} {
		if got := addresses(t, handles[i].Set(), "outbound|80||s.ns0.svc.cluster.local"); got != want {
			t.Errorf("%s: %s, want %s", handles[i].Node.Name, got, want)
		}
		if bad := p.Check(handles[i]); len(bad) > 0 {
			t.Errorf("%s: %v", handles[i].Node.Name, bad)
		}
	}
}

// A DestinationRule for selected workloads precedes the others of its namespace. For workloads that it does not select,
// it still replaces rules with wider wildcards and of other namespaces. It does not apply in other namespaces.
func TestRulesForSelectedWorkloads(t *testing.T) {
	web := svc(t, "shop/web", "10.0.0.1", "http:80:HTTP")
	host := "web.shop.svc.cluster.local"
	rule := func(name, of, text string) model.Record {
		return rec(t, model.KindDestinationRule, name, "host: '"+of+"'\nsubsets: [{name: "+strings.ReplaceAll(strings.Split(name, "@")[0], "/", "-")+"}]\n"+text)
	}
	selects := "workloadSelector: {matchLabels: {tier: x}}"
	for name, c := range map[string]struct {
		rules            []model.Record
		selected, others string // the subsets of the host
	}{
		"alone":                       {[]model.Record{rule("shop/s", host, selects)}, "shop-s", ""},
		"beside one for all":          {[]model.Record{rule("shop/a@1", host, ""), rule("shop/s@2", host, selects)}, "shop-s", "shop-a"},
		"over a wildcard":             {[]model.Record{rule("shop/a@1", "*.local", ""), rule("shop/s@2", host, selects)}, "shop-s", ""},
		"over another namespace's":    {[]model.Record{rule("istio-system/a@1", host, ""), rule("shop/s@2", host, selects)}, "shop-s", ""},
		"of another namespace":        {[]model.Record{rule("istio-system/s@1", host, selects)}, "", ""},
		"two that select, the oldest": {[]model.Record{rule("shop/s@2", host, selects), rule("shop/t@1", host, "workloadSelector: {matchLabels: {app: a}}")}, "shop-t", ""},
		"two of one selector, merged": {[]model.Record{rule("shop/s@2", host, selects), rule("shop/t@1", host, selects)}, "shop-s shop-t", ""},
	} {
		s := snapshot(append(c.rules, web)...)
		subsets := func(labels ...string) string {
			var out []string
			for _, r := range planFor(s, node("shop", "a", labels...)).Types[xds.Cluster].Sorted() {
				if _, _, subset, _, _ := xds.ParseCluster(r.Name); subset != "" {
					out = append(out, subset)
				}
			}
			return strings.Join(out, " ")
		}
		if got, others := subsets("tier=x", "app=a"), subsets("tier=y"); got != c.selected || others != c.others {
			t.Errorf("%s: selected proxies have subsets %q, want %q; others %q, want %q", name, got, c.selected, others, c.others)
		}
	}
}

// Scopes that share the resources of a host also share its variants for proxies of each place: for proxies that join,
// and after an edit that affects all of them.
func TestScopesShareVariations(t *testing.T) {
	const host = "s.ns0.svc.cluster.local"
	rule := func(limit int) model.Record {
		return rec(t, model.KindDestinationRule, "ns0/r", fmt.Sprintf("host: %s\ntrafficPolicy: {outlierDetection: {consecutive5xxErrors: %d}}\nsubsets: [{name: v1}, {name: v2}]", host, limit))
	}
	p := New(Settings{Snapshot: snapshot(svc(t, "ns0/s", "10.0.0.1", "http:80:HTTP"), svc(t, "ns1/x", "10.0.0.2", "http:80:HTTP"), rule(5))})
	var handles []*Handle
	for _, namespace := range []string{"ns0", "ns1"} {
		for _, locality := range []string{"r1", "r2"} {
			n := node(namespace, "at-"+locality)
			n.Locality = locality
			handles = append(handles, p.Join(n))
		}
	}
	check := func(when string) {
		t.Helper()
		at := func(i int) any { return handles[i].planned.Load().variant.Get(host) }
		if at(0) != at(2) || at(1) != at(3) || at(0) == at(1) {
			t.Errorf("%s: of two scopes %p and %p at one place, %p and %p at another", when, at(0), at(2), at(1), at(3))
		}
		for _, h := range handles {
			if bad := p.Check(h); len(bad) > 0 {
				t.Errorf("%s: %s: %v", when, h.Node.Name, bad)
			}
		}
	}
	check("joined")
	p.Apply(p.Snapshot().Apply(2, []model.Record{rule(6)}, nil))
	check("after an edit")
}

// Rules that compare a label of proxies with labels of endpoints cost each further value of the label no resource and
// no memory for hosts whose endpoints do not have the value.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestComparedLabelsCostTheirEndpoints(t *testing.T) {
	const services, priority = 40, "trafficPolicy: {outlierDetection: {consecutive5xxErrors: 5}, loadBalancer: {localityLbSetting: {failoverPriority: [app]}}}"
	p, shared, _ := bigPlanner(t, services, 1)
	var rules []model.Record
	for i := range services {
		h := fmt.Sprintf("s%d.ns%d.svc.cluster.local", i, i/10)
		rules = append(rules, rec(t, model.KindDestinationRule, fmt.Sprintf("ns%d/r%d", i/10, i), "host: "+h+"\n"+priority))
	}
	labelled := "s10.ns1.svc.cluster.local"
	rules = append(rules, rec(t, model.KindEndpoints, "ns1/s10-1", "hosts: ["+labelled+"]\nports: [{name: http, number: 8080}]\n"+
		"endpoints: [{address: 10.9.0.1, labels: {app: none}, namespace: ns1, health: HEALTH_READY}, {address: 10.9.0.2, labels: {app: v1}, namespace: ns1, health: HEALTH_READY}]"))
	p.Apply(p.Snapshot().Apply(2, rules, nil))
	var handles []*Handle
	built := measure(shared, func() {
		for i := range 20 {
			handles = append(handles, p.Join(node("ns0", fmt.Sprint("p", i), fmt.Sprintf("app=v%d", i))))
		}
	})
	if n := len(own(handles[0])) + len(own(handles[2])); n != 0 {
		t.Errorf("%d resources of their own for labels that no endpoint has", n)
	}
	if got := own(handles[1]); len(got) == 0 || !strings.Contains(got[0], labelled) {
		t.Errorf("its own are %q, want the assignment of %s", got, labelled)
	}
	t.Logf("built %+v", built)
	p.PlanEndpoints(p.Snapshot().Apply(3, []model.Record{rec(t, model.KindEndpoints, "ns1/s10-1", "hosts: ["+labelled+"]\nports: [{name: http, number: 8080}]\n"+
		"endpoints: [{address: 10.9.0.1, labels: {app: v2}, namespace: ns1, health: HEALTH_READY}, {address: 10.9.0.2, labels: {app: v3}, namespace: ns1, health: HEALTH_READY}]")}, nil), false)
	for i, want := range []string{"10.9.0.1:8080", "10.9.0.1:8080", "10.9.0.1:8080", "10.9.0.2:8080"} {
		if got := addresses(t, handles[i].Set(), "outbound|80||"+labelled); !strings.HasPrefix(got, want) {
			t.Errorf("v%d: %s, want %s first", i, got, want)
		}
		if bad := p.Check(handles[i]); len(bad) > 0 {
			t.Errorf("v%d: %v", i, bad)
		}
	}
}
