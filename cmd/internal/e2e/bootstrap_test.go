package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bootstrapFilter has three patches for all proxies of the namespace, for agents that request patches of their
// bootstrap before they start Envoy. Envoy refuses one of them.
const bootstrapFilter = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: bootstrap, namespace: shop}
spec:
  configPatches:
  - applyTo: BOOTSTRAP
    patch: {operation: MERGE, value: {static_resources: {clusters: [{name: patched, type: STATIC}]}}}
  - applyTo: BOOTSTRAP
    patch: {operation: MERGE, value: {static_resources: {clusters: [{name: refused, type: EDS}]}}}
  - applyTo: BOOTSTRAP
    match: {context: GATEWAY}
    patch: {operation: MERGE, value: {stats_flush_interval: 7s}}
`

// TestBootstrapOverAStream: an agent requests the patches of its bootstrap from navarchd on a separate stream, and its
// Envoy starts with them, for a sidecar and a gateway. A proxy whose agent does not request patches gets no patches,
// and is reported.
func TestBootstrapOverAStream(t *testing.T) {
	parallel(t)
	config, data := folder(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(config, "bootstrap.yaml"), []byte(bootstrapFilter), 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(t, "--config-dir", config, "--data-dir", data)
	eventually(t, patience, serves(t, d, 1))
	roots := filepath.Join(data, "root-cert.pem")
	asks := []string{"BOOTSTRAP_XDS_AGENT=true"}
	for name, c := range map[string]struct {
		env  []string
		more []string
		want bool
	}{
		"web":  {asks, nil, true},
		"edge": {asks, []string{"--type", "router"}, true},
		"mute": {nil, nil, false},
	} {
		p := runAgentWith(t, d, data, roots, name, "127.0.0.1", c.env, c.more...)
		eventually(t, patience, func() error {
			if page, err := p.page(); err != nil || !page.Ready {
				return fmt.Errorf("%s: %+v, %v", name, page, err)
			}
			return nil
		})
		dump, err := get(p.admin, "/config_dump?resource=&mask=bootstrap")
		has := strings.Contains(dump, `"patched"`) && strings.Contains(dump, `"stats_flush_interval": "7s"`)
		if err != nil || has != c.want || strings.Contains(dump, `"refused"`) {
			t.Errorf("%s started with %v %s", name, err, dump)
		}
	}
	eventually(t, patience, func() error {
		text, err := get(d.http, "/debug/problems")
		if err == nil && !strings.Contains(text, "has no effect on selected proxies whose agents do not request it") {
			err = fmt.Errorf("problems: %s", text)
		}
		return err
	})
}
