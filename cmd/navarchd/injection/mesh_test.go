package injection

import (
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/status"
)

// The mesh configuration follows the ConfigMap. An unreadable one changes nothing, and without a ConfigMap all defaults
// apply.
func TestMesh(t *testing.T) {
	m := NewMesh(normal.New(normal.Options{SystemNamespace: "istio-system", Revision: "canary"}), "", slog.New(slog.DiscardHandler))
	if m.Current() != nil || !slices.Equal(m.Names(), []string{"istio-canary"}) {
		t.Errorf("%v %s", m.Current(), m.Names())
	}
	key, own := status.Key{Namespace: "istio-system", Name: "istio-canary"}, m.Seen("istio-canary")
	found := func(mesh string) status.Found[corev1.ConfigMap] {
		return status.Found[corev1.ConfigMap]{Object: &corev1.ConfigMap{Data: map[string]string{"mesh": mesh}}}
	}
	check := func(domain string) {
		t.Helper()
		if got := m.Current().GetTrustDomain(); got != domain {
			t.Errorf("trust domain %s, want %s", got, domain)
		}
	}
	own.Replace(nil)
	check("cluster.local")
	own.Replace(map[status.Key]status.Found[corev1.ConfigMap]{key: found("trustDomain: a.example")})
	check("a.example")
	own.Observe(status.Key{Namespace: "istio-system", Name: "istio"}, found("trustDomain: b.example"))
	check("a.example")
	own.Observe(key, found("trustDomain: ["))
	check("a.example")
	own.Observe(key, found("trustDomain: c.example"))
	check("c.example")
	own.Observe(key, status.Found[corev1.ConfigMap]{}) // the last good one stands
	check("c.example")
	own.Observe(key, status.Found[corev1.ConfigMap]{Object: &corev1.ConfigMap{}})
	check("c.example")
	own.Observe(key, found("{}"))
	check("cluster.local")
}

// The ConfigMap that several revisions share applies where the revision's own has no setting, once both are known; its
// last good version stays in effect while the newest one is not valid.
func TestSharedMesh(t *testing.T) {
	m := NewMesh(normal.New(normal.Options{SystemNamespace: "istio-system"}), "shared", slog.New(slog.DiscardHandler))
	give := func(name, mesh string) {
		m.Seen(name).Observe(status.Key{Namespace: "istio-system", Name: name}, status.Found[corev1.ConfigMap]{Object: &corev1.ConfigMap{Data: map[string]string{"mesh": mesh}}})
	}
	check := func(domain, root string) {
		t.Helper()
		if c := m.Current(); c.GetTrustDomain() != domain || c.GetRootNamespace() != root {
			t.Errorf("trust domain %s, root namespace %s, want %s and %s", c.GetTrustDomain(), c.GetRootNamespace(), domain, root)
		}
	}
	give("istio", "rootNamespace: own")
	if m.Current() != nil {
		t.Error("the mesh is known before the shared configuration")
	}
	give("shared", "{trustDomain: shared.example, rootNamespace: shared}")
	check("shared.example", "own")
	give("shared", "trustDomain: [")
	check("shared.example", "own")
	give("istio", "trustDomain: own.example")
	check("own.example", "shared")
	if m := NewMesh(normal.New(normal.Options{SystemNamespace: "istio-system"}), "istio", slog.New(slog.DiscardHandler)); len(m.Names()) != 1 {
		t.Errorf("its own name is shared: %v", m.Names())
	}
}
