package e2e

import (
	"encoding/json"
	"os/exec"
	"testing"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/loadtest/programs"
)

// fastBinary is a build of navarchd whose clock is 25 hours fast, so that by it every certificate has ended.
func fastBinary(t testing.TB) string {
	t.Helper()
	return programs.Changed(t, "fast", programs.Edit{File: "cmd/navarchd/authority.go", Text: "Time { return time.Now() }", By: "Time { return time.Now().Add(25 * time.Hour) }"})
}

// A third replica whose clock is 25 hours fast starts during a rotation: it says so, signs nothing, and does not end the rotation, which
// waits for the holder of a certificate that has ended by that clock alone. The others go on.
func TestFaultReplicaWithAFastClock(t *testing.T) {
	parallel(t)
	s := newSealable(t)
	good := []*daemon{s.start(), s.start()}
	for _, d := range good {
		eventually(t, patience, d.ready)
	}
	s.trust()
	if _, err := s.sign(good[0]); err != nil {
		t.Fatal(err)
	}
	operate := func(args ...string) []byte {
		t.Helper()
		out, err := exec.Command(binary(t, "navarchctl"), append(append([]string{"ca"}, args...), s.flags[:4]...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
	operate("rotate")
	fast := startProgram(t, fastBinary(t), s.env, s.flags...)
	fast.said(t, 1, "nothing is signed here", "the clock of this machine is 25h", "ahead of the median")
	fast.said(t, 1, "keyring: trouble", "the keyring cannot be changed by this replica")
	if _, err := s.sign(fast); err == nil {
		t.Error("it has signed")
	}
	if err := fast.metric("navarch_clock_off_seconds 0"); err == nil {
		t.Error("the metric does not show it")
	}
	var report keyring.Report
	if err := json.Unmarshal(operate("status", "-o", "json"), &report); err != nil {
		t.Fatal(err)
	}
	if report.Rotating != 2 || len(report.Waiting) != 1 {
		t.Errorf("the rotation does not wait: %+v", report)
	}
	for _, d := range good {
		if _, err := s.sign(d); err != nil {
			t.Error(err)
		}
	}
}
