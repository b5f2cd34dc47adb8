package fleet

import (
	"fmt"
	"testing"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// sidecars is a snapshot of Sidecars by namespace and name, each with the labels that it selects.
func sidecars(t *testing.T, all map[string]map[string]string) *mirror.Snapshot {
	t.Helper()
	var records []model.Record
	for key, labels := range all {
		var namespace, name string
		if _, err := fmt.Sscan(key, &namespace, &name); err != nil {
			t.Fatal(err)
		}
		spec := &networkingv1.Sidecar{}
		if labels != nil {
			spec.WorkloadSelector = &networkingv1.WorkloadSelector{Labels: labels}
		}
		r, err := model.New(model.Key{Kind: model.KindSidecar, Namespace: namespace, Name: name}, 1, spec)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return mirror.Empty().Apply(1, records, nil).New
}

// For any labels of its proxies, the scope of a proxy was planned by a prewarmed proxy before a replica reports ready.
// Most namespaces precede the Sidecars of any, and the number is bounded.
func TestPrewarmedHaveTheScopes(t *testing.T) {
	s := sidecars(t, map[string]map[string]string{
		"shop default": nil, "shop web": {"app": "web"}, "shop db": {"app": "db", "tier": "1"}, "bank web": {"app": "web"}, "other x": {"app": "web"},
	})
	nodes := prewarmNodes(s, "svc.example.org", []string{"shop", "bank", "empty"})
	scopes := map[view.Scope]bool{}
	for i, node := range nodes {
		scopes[view.Of(s, node).Scope] = true
		if i < 3 && len(node.Labels) > 0 {
			t.Errorf("prewarmed proxy %d of %s has labels", i, node.Namespace)
		}
	}
	if len(nodes) != 6 || len(scopes) != 6 {
		t.Errorf("%d prewarmed proxies have %d scopes, want 6", len(nodes), len(scopes))
	}
	for _, namespace := range []string{"shop", "bank", "empty"} {
		for _, labels := range []map[string]string{nil, {"app": "web", "version": "v1"}, {"app": "db", "tier": "1", "x": "y"}, {"app": "db"}} {
			proxy := view.Node{ID: "p", Name: "p", Namespace: namespace, Labels: labels, Domain: "svc.example.org",
				Caps: xds.AgentCaps}
			if scope := view.Of(s, proxy).Scope; !scopes[scope] {
				t.Errorf("a proxy of %s with labels %v has a scope that nobody has planned: %v", namespace, labels, scope)
			}
		}
	}
	mesh, err := model.New(model.MeshKey, 1, &meshv1alpha1.MeshConfig{DefaultConfig: &meshv1alpha1.ProxyConfig{ProxyMetadata: map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}}})
	if err != nil {
		t.Fatal(err)
	}
	s = s.Apply(2, []model.Record{mesh}, nil).New
	proxy := view.Node{ID: "p", Name: "p", Namespace: "empty", Domain: "svc.example.org", Caps: xds.AgentCaps, Metadata: map[string]string{"DNS_CAPTURE": "true"}}
	if got, want := view.Of(s, prewarmNodes(s, "svc.example.org", []string{"empty"})[0]).Scope, view.Of(s, proxy).Scope; got != want {
		t.Errorf("where agents answer DNS the scope %v is planned, proxies have %v", got, want)
	}
	many := map[string]map[string]string{}
	for i := range warmScopes {
		many[fmt.Sprintf("shop s%d", i)] = map[string]string{"app": fmt.Sprint(i)}
	}
	if n := len(prewarmNodes(sidecars(t, many), "svc.example.org", []string{"shop"})); n != warmScopes {
		t.Errorf("%d prewarmed proxies, at most %d", n, warmScopes)
	}
}
