//go:build kube

package main

import (
	"testing"

	"navarch.io/navarch/loadtest/scene"
)

// The scenarios of a cluster run to their end at a small size against a real API server, as the others do without one.
func TestKubeScenariosRun(t *testing.T) { scenariosRun(t, scene.Suites["kube"]) }
