package e2e

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// records returns the keys of all stored records.
func records(t testing.TB, s *kv.Store) []string {
	t.Helper()
	resp, err := s.Client().Get(t.Context(), s.Prefix()+"records/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]string, len(resp.Kvs))
	for i, pair := range resp.Kvs {
		keys[i] = string(pair.Key)
	}
	return keys
}

// Fault 1: the leader is killed in the middle of a batch of several transactions. No process uses the incomplete batch,
// not even a replica that starts then. A new leader leads within two leases and completes the batch without losing or
// doubling an object.
func TestFaultLeaderKilledMidBatch(t *testing.T) {
	parallel(t)
	const lease = 2 * time.Second
	n, proxies := sized(t, 400, 800, "services"), sized(t, 20, 2000, "proxies") // 400 edits: at least 4 transactions
	etcd := kvtest.Start(t)
	direct, wire := "--etcd-endpoints="+etcd.Endpoint(), connect(t, etcd.Endpoint())
	dir := townFolder(t, n)
	old := start(t, "--roles=ingest", "--config-dir", dir, wire.etcd(), "--leader-lease", lease.String())
	eventually(t, patience, old.leading)
	replicas := []*daemon{xdsReplica(t, direct), xdsReplica(t, direct)}
	successor := start(t, "--roles=ingest", "--config-dir", dir, direct, "--leader-lease", lease.String())
	for _, d := range append(replicas, successor) {
		eventually(t, patience, d.ready)
	}
	f := fleet(t, proxies, sim.Config{}, replicas...)
	store := opened(t, etcd.Endpoint())
	before := records(t, store)

	reaches(t, f, 2, func() {
		held := wire.holdAfter(50<<10, true)
		write(t, dir, "town.yaml", town(0, n, 2))
		select {
		case <-held:
		case <-time.After(patience):
			t.Fatal("the batch did not begin")
		}
		killed := time.Now()
		old.kill()
		wire.drop()
		stat, err := store.Stat(t.Context())
		if err != nil || stat.Head.Complete {
			t.Fatalf("the batch is not half written: %+v, %v", stat.Head, err)
		}
		replicas = append(replicas, xdsReplica(t, direct)) // starts while the batch is incomplete
		eventually(t, patience, func() error {
			for _, d := range replicas {
				got, err := editions(t.Context(), d)
				if err == nil && (len(got) != 1 || got[edition4(1)]+got[edition4(2)] != n) {
					t.Fatalf("torn: %v", got)
				}
			}
			return successor.leading()
		})
		within(t, 2*lease+2*time.Second, time.Since(killed), "a new leader")
	})
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 2))
	}
	if after := records(t, store); !slices.Equal(before, after) {
		t.Errorf("%d records before, %d after", len(before), len(after))
	}
	unharmed(t, f)
	undisturbed(t, f)
}

// Fault 3: the leader alone loses etcd, in silence. It steps down, and another process leads within two leases;
// replicas and proxies are not disturbed. Once it is connected again it follows, and has written nothing.
func TestFaultLeaderCutOff(t *testing.T) {
	parallel(t)
	const lease = 2 * time.Second
	n, proxies := sized(t, 20, 300, "services"), sized(t, 60, 2000, "proxies")
	etcd := kvtest.Start(t)
	direct, wire := "--etcd-endpoints="+etcd.Endpoint(), connect(t, etcd.Endpoint())
	dir := townFolder(t, n)
	old := start(t, "--roles=ingest", "--config-dir", dir, wire.etcd(), "--leader-lease", lease.String())
	eventually(t, patience, old.leading)
	successor := start(t, "--roles=ingest", "--config-dir", dir, direct, "--leader-lease", lease.String())
	replica := xdsReplica(t, direct)
	eventually(t, patience, whole(t, replica, n, 1))
	f := fleet(t, proxies, sim.Config{}, replica)

	wire.set(rule{hold: true})
	cut := time.Now()
	eventually(t, patience, old.following)
	within(t, 2*lease, time.Since(cut), "it stepped down") // its lease, and the interval of the metric
	eventually(t, patience, successor.leading)
	within(t, 2*lease+2*time.Second, time.Since(cut), "another leads")
	reaches(t, f, 2, func() { write(t, dir, "town.yaml", town(0, n, 2)) }) // both read the folder, one writes
	wrote := old.mustValue(t, `navarch_store_writes_total{op="put"}`)
	wire.set(rule{})
	reaches(t, f, 3, func() { write(t, dir, "town.yaml", town(0, n, 3)) })
	if err := errors.Join(successor.leading(), old.following()); err != nil {
		t.Error(err)
	}
	if now := old.mustValue(t, `navarch_store_writes_total{op="put"}`); now != wrote {
		t.Errorf("the old leader wrote %v records", now-wrote)
	}
	unharmed(t, f)
	undisturbed(t, f)
}

// Fault 4: etcd is away, first in silence and then completely, for several leases. No proxy is disturbed. Proxies that
// reconnect are served, with all their resources or with none. When etcd is back, changes arrive.
func TestFaultEtcdAway(t *testing.T) {
	parallel(t)
	const lease = time.Second
	n, proxies := sized(t, 50, 300, "services"), sized(t, 50, 2000, "proxies")
	etcd := kvtest.Start(t)
	wire := connect(t, etcd.Endpoint())
	dir := townFolder(t, n)
	leader := start(t, "--roles=ingest", "--config-dir", dir, wire.etcd(), "--leader-lease", lease.String())
	replicas := []*daemon{xdsReplica(t, wire.etcd()), xdsReplica(t, wire.etcd())}
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
	}
	f := fleet(t, proxies, sim.Config{}, replicas...)
	reconnects := func(what string) {
		t.Helper()
		comeBack(t, f, proxies, n, replicas[0], what)
	}
	wire.set(rule{hold: true})
	eventually(t, patience, leader.following)
	reconnects("in silence")
	for _, d := range replicas {
		eventually(t, patience, d.lonely)
	}
	reconnects("in silence, noticed")
	wire.set(rule{refuse: true})
	wire.drop()
	etcd.Stop()
	reconnects("gone")
	undisturbed(t, f)
	reaches(t, f, 2, func() {
		write(t, dir, "town.yaml", town(0, n, 2))
		etcd.Restart(etcd.Dir())
		wire.set(rule{})
	})
	unharmed(t, f)
	undisturbed(t, f)
}

// comeBack checks that proxies are served while replica d is without etcd. The proxies of a town of n services
// reconnect: first all of them with their resources, and then half of them without. what is the situation, for
// messages.
func comeBack(t *testing.T, f *sim.Fleet, proxies, n int, d *daemon, what string) {
	t.Helper()
	got := resumed(t, f, proxies, func() { f.Reconnect(sim.All, sim.Reconnect{Now: true}) }).Total()
	if got.Resources+got.Removed > 0 {
		t.Errorf("%s: who came back with everything was sent %d resources, and %d removals", what, got.Resources, got.Removed)
	}
	got = resumed(t, f, proxies/2, func() { f.Reconnect(sim.First(proxies/2), sim.Reconnect{Cold: true, Now: true}) }).Total()
	if got.Resources < uint64(proxies/2*2*n) {
		t.Errorf("%s: who came back with nothing was sent %d resources", what, got.Resources)
	}
	if err := d.ready(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// lonely returns an error until the replica has noticed that etcd is away.
func (d *daemon) lonely() error {
	if !strings.Contains(d.log.String(), "etcd does not answer") {
		return errors.New("the replica has not noticed that etcd is away")
	}
	return nil
}

// mustValue returns the value of a metric, and fails the test if it is absent.
func (d *daemon) mustValue(t testing.TB, name string) float64 {
	t.Helper()
	v := d.value(name)
	if math.IsNaN(v) {
		t.Fatalf("no metric %s", name)
	}
	return v
}
