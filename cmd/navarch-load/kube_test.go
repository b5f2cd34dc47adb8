//go:build kube

package main

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/loadtest/scene"
)

// The scenarios of a cluster run to their end at a small size against a real API server, as the others do without one.
// They mostly wait, so several are run at once.
func TestKubeScenariosRun(t *testing.T) {
	for group := range slices.Chunk(scene.Suites["kube"], 3) {
		t.Run(strings.Join(group, " "), func(t *testing.T) {
			t.Parallel()
			scenariosRun(t, group)
		})
	}
}
