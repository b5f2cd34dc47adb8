package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv/kvtest"
)

// by returns an edition of the routes that names its writer in etcd, a number of times.
func by(who string, times, seconds int) string {
	return strings.Replace(routes(seconds), "- timeout", "- headers: {response: {set: {x-by: "+strings.Repeat(who+" ", times)+"}}}\n    timeout", 1)
}

// A leader is paused in the middle of a transaction for longer than its lease, and replaced within two leases. Then the
// rest of the transaction reaches etcd, and the leader continues with a folder that has changed once more. Neither is
// written.
func TestStoppedLeaderWritesNothing(t *testing.T) {
	parallel(t)
	const puts = `navarch_store_writes_total{op="put"}`
	etcd := kvtest.Start(t)
	store, lease := "--etcd-endpoints="+etcd.Endpoint(), 2*time.Second
	wire := connect(t, etcd.Endpoint())
	oldDir, newDir := folder(t), folder(t)
	old := start(t, "--roles=ingest", "--config-dir", oldDir, wire.etcd(), "--leader-lease", lease.String())
	eventually(t, patience, old.leading)
	successor := start(t, "--roles=ingest", "--config-dir", newDir, store, "--leader-lease", lease.String())
	replica := start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, replica, 1))
	history := etcd.Client().Watch(t.Context(), "/navarch/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-history
	wrote := old.mustValue(t, puts)

	held := wire.holdAfter(8<<10, true) // more than it says beside the transaction, and less than that is
	write(t, oldDir, "routes.yaml", by("the-old-leader", 2<<10, 6))
	select {
	case <-held:
	case <-time.After(patience):
		t.Fatal("the old leader writes nothing: the test shows nothing")
	}
	if err := old.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	write(t, oldDir, "routes.yaml", by("the-old-leader", 1, 7))
	write(t, newDir, "routes.yaml", routes(3))
	eventually(t, patience, successor.leading)
	within(t, 2*lease+time.Second, time.Since(stopped), "another leads")
	eventually(t, patience, serves(t, replica, 3))
	wire.set(rule{})
	if err := old.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, old.following)
	// A barrier: an edit that the successor makes after the old leader was back is the newest there is.
	write(t, newDir, "routes.yaml", by("the-successor", 1, 4))
	eventually(t, patience, serves(t, replica, 4))
	if err := successor.leading(); err != nil {
		t.Error(err)
	}
	if now := old.mustValue(t, puts); now != wrote {
		t.Errorf("the old leader says that it wrote %v records", now-wrote)
	}
	for end := false; !end; {
		seen, more := <-history
		if err := seen.Err(); err != nil || !more {
			t.Fatal("the history ends: ", err)
		}
		for _, e := range seen.Events {
			if strings.Contains(string(e.Kv.Value), "the-old-leader") {
				t.Errorf("the old leader wrote %s at revision %d", e.Kv.Key, e.Kv.ModRevision)
			}
			end = end || strings.Contains(string(e.Kv.Value), "the-successor")
		}
	}
}
