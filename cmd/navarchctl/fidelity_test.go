package main

import (
	"os/exec"
	"testing"
)

// Each difference from istiod's configuration of gateways has a line in deploy/fidelity/gateways.txt with its number of
// places. A Secret that istiod refused and navarchctl renders fails the comparison.
func TestFidelityOfGateways(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	const folder = "../../deploy/fidelity/"
	compare := exec.CommandContext(t.Context(), "python3", folder+"compare.py", folder+"testdata/gateways.tar.xz", "navarchctl")
	out, err := compare.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
