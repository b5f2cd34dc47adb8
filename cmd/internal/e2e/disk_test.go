package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"navarch.io/navarch/store/kv/kvtest"
)

// A replica that is started while etcd is away serves what it knew last: the same bytes. When etcd is back it goes on.
func TestStartWhileEtcdIsAway(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir, state, store := folder(t), t.TempDir(), "--etcd-endpoints="+etcd.Endpoint()
	start(t, "--roles=ingest", "--config-dir", dir, store)
	first := start(t, "--roles=xds", "--state-dir", state, store)
	eventually(t, patience, serves(t, first, 1))
	before, err := everything(t.Context(), first.grpc, node("shop", "client", "10.1.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { _, err := os.Stat(filepath.Join(state, "snapshot")); return err })
	first.stop(t)

	etcd.Stop()
	second := start(t, "--roles=xds", "--state-dir", state, store)
	eventually(t, patience, serves(t, second, 1))
	after, err := everything(t.Context(), second.grpc, node("shop", "client", "10.1.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, before, after)

	etcd.Restart(etcd.Dir())
	write(t, dir, "routes.yaml", routes(2))
	eventually(t, patience, serves(t, second, 2))
}
