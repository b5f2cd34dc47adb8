package injection

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/status"
)

// The mesh configuration counts as it changes; one that cannot be read changes nothing, one that is not there is all defaults.
func TestMesh(t *testing.T) {
	m := NewMesh(normal.New(normal.Options{SystemNamespace: "istio-system", Revision: "canary"}), slog.New(slog.DiscardHandler))
	if m.Current() != nil || m.Name() != "istio-canary" {
		t.Errorf("%v %s", m.Current(), m.Name())
	}
	found := func(mesh string) status.Found[corev1.ConfigMap] {
		return status.Found[corev1.ConfigMap]{Object: &corev1.ConfigMap{Data: map[string]string{"mesh": mesh}}}
	}
	check := func(domain string) {
		t.Helper()
		if got := m.Current().GetTrustDomain(); got != domain {
			t.Errorf("trust domain %s, want %s", got, domain)
		}
	}
	m.Replace(nil)
	check("cluster.local")
	m.Replace(map[status.Key]status.Found[corev1.ConfigMap]{m.key(): found("trustDomain: a.example")})
	check("a.example")
	m.Observe(status.Key{Namespace: "istio-system", Name: "istio"}, found("trustDomain: b.example"))
	check("a.example")
	m.Observe(m.key(), found("trustDomain: ["))
	check("a.example")
	m.Observe(m.key(), found("trustDomain: c.example"))
	check("c.example")
	m.Observe(m.key(), status.Found[corev1.ConfigMap]{}) // the last good one stands
	check("c.example")
	m.Observe(m.key(), status.Found[corev1.ConfigMap]{Object: &corev1.ConfigMap{}})
	check("c.example")
	m.Observe(m.key(), found("{}"))
	check("cluster.local")
}
