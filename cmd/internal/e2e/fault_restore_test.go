package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// Fault 7: etcd is restored from a backup that is older than the proxies' state, in each possible way, while no leader
// exists. Replicas serve the state that they have read since, also after a restart. No proxy receives anything, and
// only those of the restarted replica are disconnected. A proxy without resources gets the newest edition. An alarm
// names the command by which an operator makes replicas serve the stored state. Then all proxies get that state, and
// with a leader the state of the sources.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestFaultRestoredEtcd(t *testing.T) {
	for _, way := range []string{"new cluster id", "same id", "bumped"} {
		t.Run(way, func(t *testing.T) {
			parallel(t)
			restoredEtcd(t, way)
		})
	}
}

func restoredEtcd(t *testing.T, way string) {
	n, proxies := sized(t, 20, 300, "services"), sized(t, 20, 2000, "proxies")
	etcd := kvtest.Start(t)
	dir, store := townFolder(t, n), "--etcd-endpoints="+etcd.Endpoint()
	lead := func() *daemon { return start(t, "--roles=ingest", "--config-dir", dir, store) }
	leader := lead()
	states := []string{t.TempDir(), t.TempDir()}
	args := func(i int) []string { return mtls(t, "--roles=xds", store, "--state-dir", states[i]) }
	replicas := []*daemon{start(t, args(0)...), start(t, args(1)...)}
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
	}
	leader.stop(t)
	backup := etcd.Restored()[way]
	leader = lead()
	f := fleet(t, proxies, sim.Config{}, replicas...)
	reaches(t, f, 2, func() { write(t, dir, "town.yaml", town(0, n, 2)) })
	for _, state := range states {
		eventually(t, patience, func() error { _, err := os.Stat(filepath.Join(state, "snapshot")); return err })
	}
	leader.stop(t)
	quiet(t, f)
	before := f.Stats()

	etcd.Restart(backup)
	for _, d := range replicas {
		eventually(t, patience, func() error { _, err := rollback(d); return err })
	}
	replicas[0].hasProblem(t, "head", "the store's newest state is older than the one that was read")
	quiet(t, f)
	if sent := f.Stats().Since(before).Total(); sent.Responses > 0 {
		t.Errorf("%d resources and %d removals were sent to proxies that were ahead of the backup", sent.Resources, sent.Removed)
	}
	undisturbed(t, f)
	got := resumed(t, f, proxies/2, func() { // the half of the fleet that is its
		replicas[1].stop(t)
		replicas[1] = replicas[1].again(t, navarchd(t), args(1)...)
	}).Total()
	if got.Resources+got.Removed > 0 {
		t.Errorf("after a restart from the disk %d resources and %d removals were sent to proxies that have everything", got.Resources, got.Removed)
	}
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 2))
		comeBack(t, f, proxies, n, d, "while the alarm is raised")
	}
	var command string
	for _, d := range replicas {
		eventually(t, patience, func() (err error) { command, err = rollback(d); return err })
	}

	unharmed(t, f)
	older := f.Watch(sim.Change{Type: xds.Route, Name: "80", Marker: edition4(1)})
	if out, err := adopt(t, etcd, strings.Fields(command)...); err != nil || !strings.Contains(out, "adopted: ") {
		t.Fatalf("%v: %s", err, out)
	}
	acknowledged(t, older)
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
		eventually(t, patience, func() error { return d.metric(`navarch_store_alarm{cause="identity"} 0`) })
	}
	reaches(t, f, 3, func() {
		write(t, dir, "town.yaml", town(0, n, 3))
		lead()
	})
	// An operator took the fleet back, one replica after the other: that is what the checks of steps back find, and no
	// fault. The head that was adopted may have a lower revision of etcd than what the proxies have.
	f.CheckEqual()
	for kind, v := range f.Stats().Found {
		if kind != sim.VersionBack && kind != sim.RevisionBack {
			t.Errorf("%d times %s: %v", v.Count, kind, v.Examples)
		}
	}
}

// rollback returns an error until a replica has raised the alarm about a store that went back. The replica must stay
// ready. The arguments of `navarchctl store adopt` are those that its page names.
func rollback(d *daemon) (arguments string, err error) {
	if err := d.metric(`navarch_store_alarm{cause="identity"} 1`); err != nil {
		return "", err
	}
	page, err := get(d.http, "/ready")
	if err != nil {
		return "", err
	}
	if _, arguments, _ = strings.Cut(page, "navarchctl store adopt "); arguments == "" {
		err = errors.New(page)
	}
	return arguments, err
}
