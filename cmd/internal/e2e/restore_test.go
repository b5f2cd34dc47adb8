package e2e

import (
	"errors"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv/kvtest"
)

// Etcd is restored from a backup while nobody leads: replicas serve what they have read since, also after a restart, and name the command
// by which an operator makes them serve what is stored. The next leader writes what its sources say.
func TestRestoredEtcd(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir, state, store := folder(t), t.TempDir(), "--etcd-endpoints="+etcd.Endpoint()
	lead := func() *daemon { return start(t, "--roles=ingest", "--config-dir", dir, store) }
	replicate := func() *daemon { return start(t, "--roles=xds", "--state-dir", state, store) }
	leader, replica := lead(), replicate()
	eventually(t, patience, serves(t, replica, 1))
	leader.stop(t)
	backup := etcd.Backup()
	leader = lead()
	write(t, dir, "routes.yaml", routes(2))
	eventually(t, patience, serves(t, replica, 2))
	leader.stop(t)

	etcd.Restart(backup)
	var command string
	alarmed := func() error {
		if err := replica.metric(`navarch_store_alarm{cause="identity"} 1`); err != nil {
			return err
		}
		page, err := get(replica.http, "/ready")
		if err != nil {
			return err
		}
		if _, command, _ = strings.Cut(page, "navarchctl store adopt "); command == "" {
			return errors.New(page)
		}
		return serves(t, replica, 2)()
	}
	eventually(t, patience, alarmed)
	replica.hasProblem(t, "head", "the store's newest state is older than the one that was read")
	replica.stop(t)
	replica = replicate()
	eventually(t, patience, alarmed)

	if out, err := adopt(t, etcd, strings.Fields(command)...); err != nil || !strings.Contains(out, "adopted: ") {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, patience, serves(t, replica, 1))
	eventually(t, patience, func() error { return replica.metric(`navarch_store_alarm{cause="identity"} 0`) })
	lead()
	eventually(t, patience, serves(t, replica, 2))
}
