package e2e

import (
	"context"
	"fmt"
	"testing"

	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/embedded"
	"navarch.io/navarch/store/kv/kvtest"
)

// left returns an error while a store has a record of a replica or a ring with one.
func left(t *testing.T, store *kv.Store) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one := func(folder string) kv.Folder {
		states, err := store.Follow(ctx, folder)
		if err != nil {
			t.Fatal(err)
		}
		return <-states
	}
	if records := one("members/").Blobs; len(records) > 0 {
		return fmt.Errorf("there is a record: %s", records[0].Path)
	}
	rings := one("ring/").Blobs
	if len(rings) != 1 {
		return fmt.Errorf("%d rings", len(rings))
	}
	r, err := ring.Decode(rings[0].Raw)
	if err == nil && len(r.Members()) > 0 {
		err = fmt.Errorf("ring %d has %v", r.Version(), r.Members())
	}
	return err
}

// On SIGTERM a replica leaves the ring and deletes its record from etcd before it ends, whatever its lease, even if it
// is the last replica.
func TestStoppedReplicaIsInNoRing(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	store := "--etcd-endpoints=" + etcd.Endpoint()
	ingest := start(t, "--roles=ingest", "--config-dir", folder(t), store)
	eventually(t, patience, ingest.leading)
	args := []string{"--roles=xds", store, "--replica-lease", "1h", "--replica-ramp", "0s"}
	one, two := start(t, args...), start(t, args...)
	settled(t, one, two)
	one.stop(t)
	settled(t, two)
	two.stop(t)
	mesh, err := kv.Open(kv.Config{Mesh: "default", Endpoints: []string{etcd.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer mesh.Close()
	if err := left(t, mesh); err != nil {
		t.Error(err)
	}
}

// With one process and its embedded etcd, SIGTERM leaves an empty ring. After a kill, the restarted process owns the
// ring at once, although the lease of the old record is an hour.
func TestRestartedProcessHasTheRing(t *testing.T) {
	parallel(t)
	args := []string{"--config-dir", folder(t), "--data-dir", t.TempDir(), "--replica-lease", "1h", "--replica-ramp", "0s", "--secure-grpc-addr="}
	d := start(t, args...)
	settled(t, d)
	d.kill()
	d = start(t, args...)
	settled(t, d)
	eventually(t, patience, func() error { return d.metric("navarch_fleet_replicas 1") })
	d.stop(t)
	etcd, err := embedded.Start(embedded.Config{Mesh: "default", Dir: args[3]})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	if err := left(t, etcd.Store); err != nil {
		t.Error(err)
	}
}
