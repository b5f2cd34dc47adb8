package e2e

import (
	"fmt"
	"testing"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/programs"
)

// wrongBinary builds a navarchd whose normal form of Services is wrong: HTTP ports become TCP ports.
func wrongBinary(t testing.TB) string {
	t.Helper()
	return programs.Changed(t, "wrong", programs.Edit{File: "store/normal/service.go", Text: `"http": model.Protocol_PROTOCOL_HTTP,`, By: `"http": model.Protocol_PROTOCOL_TCP,`})
}

// A build with a wrong normal form runs as a canary: a separate revision beside the serving one, on the same etcd and
// the same folder. Its own proxies have no routes. Those of the other revision receive exactly the edits while the
// canary starts, leads its revision, and ends. A proxy that returns from the canary is not affected by its remains.
func TestWrongNormalFormHarmsItsOwnRevision(t *testing.T) {
	parallel(t)
	const n, proxies = 10, 12
	etcd := kvtest.Start(t)
	dir := townFolder(t, n)
	args := mtls(t, "--roles=ingest,xds", "--config-dir", dir, "--etcd-endpoints="+etcd.Endpoint(), "--leader-lease", "2s", "--replica-lease", "2s", "--replica-ramp", "0s")
	stable := startProgram(t, navarchd(t), nil, args...)
	eventually(t, patience, whole(t, stable, n, 1))
	eventually(t, patience, stable.leading)
	f := fleet(t, proxies, sim.Config{}, stable)
	before := f.Stats()

	canary := startProgram(t, wrongBinary(t), []string{"REVISION=canary"}, args...)
	eventually(t, patience, canary.leading)
	eventually(t, patience, canary.ready)
	moved := fleet(t, proxies, sim.Config{}, canary)
	eventually(t, patience, func() error {
		got, err := editions(t.Context(), canary)
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("the canary serves routes, %v: the test shows nothing", got)
		}
		return err
	})
	reaches(t, f, 2, func() { write(t, dir, "town.yaml", town(0, n, 2)) })
	if err := stable.leading(); err != nil {
		t.Errorf("the revision that serves: %v", err)
	}
	moved.Close()
	canary.kill()
	reaches(t, f, 3, func() { write(t, dir, "town.yaml", town(0, n, 3)) })
	for kind, sent := range f.Stats().Since(before).Types {
		if kind != "RDS" && sent.Resources+sent.Removed > 0 {
			t.Errorf("%s: %d were sent, %d removed", kind, sent.Resources, sent.Removed)
		}
		if kind == "RDS" && sent.Resources != 2*proxies {
			t.Errorf("%d route configurations were sent, want two to each of %d", sent.Resources, proxies)
		}
	}
	undisturbed(t, f)
	back := fleet(t, proxies, sim.Config{}, stable)
	both := f.Watch(sim.Change{Type: xds.Route, Name: "80", Marker: edition4(4)})
	reaches(t, back, 4, func() { write(t, dir, "town.yaml", town(0, n, 4)) })
	acknowledged(t, both)
	unharmed(t, f)
	unharmed(t, back)
}
