package e2e

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/store/loopback"
)

// Fault 4, with three members of etcd: a replica uses a member that is cut off from the others, and that answers
// without a quorum. Its proxies stay connected, and are served when they reconnect. An agent that has seen newer writes
// is not served older state. The same is checked while no member has a quorum. When etcd is whole again, changes
// arrive.
func TestFaultMemberWithoutQuorum(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 30, 300, "services"), sized(t, 40, 2000, "proxies")
	etcd := startEtcdCluster(t, loopback.For(t), loopback.For(t), loopback.For(t))
	dir := townFolder(t, n)
	leader := start(t, "--roles=ingest", "--config-dir", dir, "--etcd-endpoints", etcd.endpoint(0)+","+etcd.endpoint(1), "--leader-lease", "2s")
	most := xdsReplica(t, "--etcd-endpoints", etcd.endpoint(0))
	few := xdsReplica(t, "--etcd-endpoints", etcd.endpoint(2))
	eventually(t, patience, whole(t, most, n, 1))
	eventually(t, patience, whole(t, few, n, 1))
	f := fleet(t, proxies, sim.Config{}, few)

	etcd.cutOff(2)
	write(t, dir, "town.yaml", town(0, n, 2))
	eventually(t, patience, whole(t, most, n, 2))
	eventually(t, patience, few.lonely)
	comeBack(t, f, proxies, n, few, "one is cut off")
	seen, store, err := edition(t.Context(), most, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := edition(t.Context(), few, seen, store); status.Code(err) != codes.Unavailable {
		t.Errorf("an agent that has seen revision %d was answered with %d, %v", seen, got, err)
	}
	reaches(t, f, 2, etcd.mend)

	for member := range 3 {
		etcd.cutOff(member)
	}
	eventually(t, patience, leader.following)
	eventually(t, patience, most.lonely)
	comeBack(t, f, proxies, n, few, "nobody has a quorum")
	undisturbed(t, f)
	reaches(t, f, 3, func() {
		write(t, dir, "town.yaml", town(0, n, 3))
		etcd.mend()
	})
	unharmed(t, f)
	undisturbed(t, f)
}
