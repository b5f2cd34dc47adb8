//go:build kube

package chart

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The mesh counts requests by Prometheus' provider, as with istiod's chart, unless the values name another provider. No
// proxy is configured for the chart's etcd. istiod's Services are configured as with istiod.
func TestKubeChartMesh(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{"meshConfig.enableTracing=false": "[prometheus]", "meshConfig.defaultProviders.tracing={jaeger}": "[prometheus]",
		"meshConfig.defaultProviders.metrics={otel}": "[otel]", "meshConfig.defaultProviders.metrics=null": "<nil>"} {
		config, mesh := &corev1.ConfigMap{}, map[string]any{}
		object(t, template(t, "--set", set), "ConfigMap", "istio", config)
		if err := yaml.Unmarshal([]byte(config.Data["mesh"]), &mesh); err != nil {
			t.Fatal(err)
		}
		providers, _ := mesh["defaultProviders"].(map[string]any)
		if got := fmt.Sprint(providers["metrics"]); got != want {
			t.Errorf("%s: metrics by %s, want %s", set, got, want)
		}
	}
	found := map[string]bool{}
	for scene, text := range scenes(t) {
		for _, u := range objects(t, text) {
			if u.GetKind() != "Service" {
				continue
			}
			to := map[bool]string{true: "~"}[strings.HasPrefix(u.GetName(), "navarch-etcd")]
			if got := u.GetAnnotations()["networking.istio.io/exportTo"]; got != to {
				t.Errorf("%s: Service %s is exported to %q, want %q", scene, u.GetName(), got, to)
			}
			found[u.GetName()] = true
		}
	}
	if !found["istiod"] || !found["navarch-etcd"] || !found["navarch-etcd-peers"] {
		t.Errorf("Services are %v", found)
	}
}
