package inject

import (
	"reflect"
	"strings"
	"testing"
)

// A caller's changes do not affect the cached result. Large texts and invalid YAML are not cached.
func TestOverlaysAreKept(t *testing.T) {
	const text = "spec: {containers: [{name: istio-proxy, ports: [{containerPort: 15090}]}]}"
	o := newOverlays()
	for range 3 {
		out, err := o.parse(text)
		if err != nil {
			t.Fatal(err)
		}
		proxy := out["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
		want := map[string]any{"name": "istio-proxy", "ports": []any{map[string]any{"containerPort": float64(15090)}}}
		if !reflect.DeepEqual(proxy, want) {
			t.Fatalf("%v", proxy)
		}
		proxy["ports"].([]any)[0].(map[string]any)["containerPort"] = float64(1)
		proxy["name"] = "other"
	}
	if again := testing.AllocsPerRun(10, func() { _, _ = o.parse(text) }); again > 40 {
		t.Errorf("%v allocations for a text that was read before", again)
	}
	for _, text := range []string{"spec: {nodeName: " + strings.Repeat("x", maxOverlayText) + "}", "spec: ["} {
		_, _ = o.parse(text)
	}
	if n := o.read.Len(); n != 1 {
		t.Errorf("%d texts are kept", n)
	}
}
