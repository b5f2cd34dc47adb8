//go:build !race

package plan

import (
	"testing"

	"navarch.io/navarch/push/envoytest"
)

// TestEnvoyTakesRandomMeshes: a real Envoy accepts the bootstraps that contain the plans of random meshes.
// Promise: security-gateways.md#make-a-gateway-fail
func TestEnvoyTakesRandomMeshes(t *testing.T) {
	envoy := envoytest.Binary(t)
	for i := range max(1, *histories/6) {
		seed := i + 2 // in history 2 a provider of spans is an alias of another host
		d := newRandomRun(t, firstAsked+uint64(seed), &affects)
		for i := range 60 {
			d.step(i)
			d.drain()
		}
		seen := map[*planned]bool{} // proxies of one view have equal plans
		for _, h := range d.handles {
			view := h.planned.Load()
			if seen[view] {
				continue
			}
			seen[view] = true
			complaint := envoytest.Validate(envoy, envoytest.File(t, envoytest.JSON(t, fold(t, h.Set()))))
			if complaint != "" {
				t.Errorf("seed %d, %s/%s: %s", seed, h.Node.Namespace, h.Node.Name, complaint)
			}
		}
	}
}
