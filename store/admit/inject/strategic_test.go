package inject

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// drawnPod is a Pod, or an overlay, of a few of the fields that are merged, with names of a few.
func drawnPod(r *rand.Rand, overlay bool) map[string]any {
	name := func() string { return string(rune('a' + r.IntN(6))) }
	some := func(n int, make func() any) any {
		if overlay && r.IntN(8) == 0 {
			return nil
		}
		all := []any{}
		for range r.IntN(n) {
			all = append(all, make())
		}
		return all
	}
	env := func() any { return map[string]any{"name": name(), "value": name()} }
	port := func() any {
		return map[string]any{"containerPort": float64(r.IntN(4)), "protocol": []string{"TCP", "UDP"}[r.IntN(2)]}
	}
	container := func() any {
		c := map[string]any{"name": name(), "env": some(5, env), "ports": some(5, port), "args": some(3, func() any { return name() }), "image": name()}
		if r.IntN(2) == 0 {
			c["securityContext"] = map[string]any{"runAsUser": float64(r.IntN(3)), "capabilities": map[string]any{"add": some(3, func() any { return name() })}}
		}
		if overlay && r.IntN(3) == 0 {
			c["image"] = nil
		}
		return c
	}
	pod := map[string]any{"metadata": map[string]any{"labels": map[string]any{name(): name()}, "finalizers": some(4, func() any { return name() })},
		"spec": map[string]any{"containers": some(5, container), "initContainers": some(3, container),
			"volumes":          some(5, func() any { return map[string]any{"name": name(), "emptyDir": map[string]any{}} }),
			"imagePullSecrets": some(3, func() any { return map[string]any{"name": name()} }),
			"tolerations":      some(3, func() any { return map[string]any{"key": name()} })}}
	return pod
}

// The merge has the same result as the library's.
// Promise: security-admission.md#expensive-objects
func TestMergeIsStrategic(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		pod, overlay := drawnPod(r, false), drawnPod(r, true)
		want, wantErr := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(runtime.DeepCopyJSON(pod), runtime.DeepCopyJSON(overlay), podSchema)
		got, err := merge(runtime.DeepCopyJSON(pod), runtime.DeepCopyJSON(overlay), true)
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if (err == nil) != (wantErr == nil) || err == nil && string(a) != string(b) {
			before, _ := json.Marshal(pod)
			over, _ := json.Marshal(overlay)
			t.Fatalf("seed %d: %s\nand %s\ngive %s, %v\nwant %s, %v", seed, before, over, b, err, a, wantErr)
		}
	}
}

// Directives are the library's.
func TestMergeHeedsDirectives(t *testing.T) {
	pod := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}}}}
	got, err := merge(pod, map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "$patch": "delete"}}}}, true)
	if text := fmt.Sprint(got); err != nil || strings.Contains(text, "name:a") || !strings.Contains(text, "name:b") {
		t.Errorf("%s, %v", text, err)
	}
}
