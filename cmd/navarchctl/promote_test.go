package main

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// A revision that has led is promoted, and the command prints the previous one; for an unknown name nothing is written.
func TestPromote(t *testing.T) {
	s := kvtest.Start(t)
	s.MustCommit(kv.Batch{Epoch: s.Elect("a")})
	run := func(revision string) (string, error) {
		var out strings.Builder
		cmd := storeCommand()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"promote", revision, "--etcd-endpoints", s.Endpoint(), "--mesh", kvtest.Mesh})
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	for range 2 {
		if out, err := run("canary"); err == nil || !strings.Contains(err.Error(), "revision canary has no records") {
			t.Errorf("a revision that nobody has: %q, %v", out, err)
		}
		if got, err := s.Promoted(t.Context()); err != nil || got == "canary" {
			t.Errorf("%q is promoted, %v", got, err)
		}
		out, err := run("default")
		if got, promoted := s.Promoted(t.Context()); err != nil || promoted != nil || got != kv.DefaultRevision || !strings.HasPrefix(out, "revision default writes to Kubernetes from now on; before it was ") {
			t.Errorf("%q, %v; %q is promoted, %v", out, err, got, promoted)
		}
	}
	s.Put("revisions/canary/head", "x")
	if out, err := run("canary"); err != nil || !strings.HasSuffix(out, "before it was default\n") {
		t.Errorf("%q, %v", out, err)
	}
}
