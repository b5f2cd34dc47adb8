//go:build !race

package plan

import (
	"testing"

	"navarch.io/navarch/loadtest/envoytest"
)

// TestEnvoyTakesRandomMeshes folds what was planned for random meshes into bootstraps, and asks a real Envoy.
func TestEnvoyTakesRandomMeshes(t *testing.T) {
	envoy := envoytest.Binary(t)
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		d := newDrill(t, 500+uint64(seed), &affects)
		for i := range 60 {
			d.step(i)
			d.drain()
		}
		for _, h := range d.handles {
			complaint := envoytest.Validate(envoy, envoytest.File(t, envoytest.JSON(t, fold(t, h.Set()))))
			if complaint != "" {
				t.Errorf("seed %d, %s/%s: %s", seed, h.Node.Namespace, h.Node.Name, complaint)
			}
		}
	}
}
