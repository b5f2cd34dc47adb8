package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// deleteRecords deletes the keys of a folder below records/, as `etcdctl del --prefix` does, and returns their number.
func deleteRecords(t *testing.T, s *kv.Store, folder string) int64 {
	t.Helper()
	resp, err := s.Client().Delete(t.Context(), s.Prefix()+"records/"+folder, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	return resp.Deleted
}

// asSaid returns the stored contents, and whether they are those of the head.
func asSaid(t *testing.T, s *kv.Store) (kv.Contents, error) {
	t.Helper()
	stat, err := s.Stat(t.Context())
	if err != nil {
		return kv.Contents{}, err
	}
	state, err := s.Load(t.Context(), stat.Revision)
	if err != nil {
		return kv.Contents{}, err
	}
	if kinds := state.Contents.Differ(stat.Head.Contents); len(kinds) > 0 || !stat.Head.Contents.Known() {
		return state.Contents, fmt.Errorf("%v differ from the head at revision %d", kinds, stat.Head.Revision)
	}
	return state.Contents, nil
}

// adopt runs navarchctl store adopt.
func adopt(t *testing.T, etcd *kvtest.Server, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(binary(t, "navarchctl"), append([]string{"store", "adopt", "--etcd-endpoints=" + etcd.Endpoint()}, args...)...).CombinedOutput()
	return string(out), err
}

// mustAdopt adopts the stored records.
func mustAdopt(t *testing.T, etcd *kvtest.Server) {
	t.Helper()
	if out, err := adopt(t, etcd, "--yes"); err != nil || !strings.Contains(out, "adopted: ") {
		t.Fatalf("%v: %s", err, out)
	}
}

// A foreign tool deletes records, and an edit follows: no client loses a cluster, and the leader restores all records,
// whatever their share of a kind. It restores them without a delay (store/ingest TestRepairsWaitForNothing); at full
// size, on an idle machine, within 10 s.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestDeletedRecordsComeBack(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir, store := folder(t), "--etcd-endpoints="+etcd.Endpoint()
	leader := start(t, "--roles=ingest", "--config-dir", dir, store)
	replica := start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, replica, 1))
	s := opened(t, etcd.Endpoint())
	was, err := asSaid(t, s)
	if err != nil {
		t.Fatal(err)
	}
	for i, folder := range []string{"Service/", ""} {
		if n := deleteRecords(t, s, folder); n < 2 {
			t.Fatalf("%d records were deleted", n)
		}
		deleted := time.Now()
		eventually(t, patience, func() error {
			now, err := asSaid(t, s)
			if kinds := now.Differ(was); err == nil && len(kinds) > 0 {
				err = fmt.Errorf("%v are not as before", kinds)
			}
			return err
		})
		within(t, 10*time.Second, time.Since(deleted), "all deleted records are back")
		write(t, dir, "routes.yaml", routes(2+i))
		eventually(t, patience, serves(t, replica, 2+i))
		if err := has(t, replica, webCluster, dbCluster)(); err != nil {
			t.Error(err)
		}
		if was, err = asSaid(t, s); err != nil {
			t.Fatal(err)
		}
	}
	leader.said(t, 1, "level=WARN", "another writer changed stored records: they are restored", "kinds=Service", "records=2")
	if out, err := adopt(t, etcd, "--yes"); err != nil || !strings.Contains(out, "nothing to adopt") {
		t.Errorf("%v: %s", err, out)
	}
}

// editBy makes a leader that knows only this edit write a batch, and returns its election key.
func editBy(t *testing.T, s *kv.Store, stored kv.Contents) string {
	t.Helper()
	key := s.LeaderPath() + "/another"
	resp, err := s.Client().Put(t.Context(), key, "another")
	if err != nil {
		t.Fatal(err)
	}
	edit, err := model.New(model.Key{Kind: model.KindService, Namespace: "shop", Name: "new", Origin: origin.New("", "files")}, 1, &model.ServiceSpec{Hosts: []string{"new.shop.svc.cluster.local"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), kv.Batch{Epoch: kv.Epoch{Key: key, Revision: resp.Header.Revision}, Stored: stored, Puts: []model.Record{edit}}); err != nil {
		t.Fatal(err)
	}
	return key
}

// Records are deleted while no leader restores them: replicas serve the last good ones of the kind, and report that; a
// replica that starts is not ready. An operator adopts the stored records on purpose. The next leader writes the
// records of its sources.
func TestHeldKindIsAdopted(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir, store := folder(t), "--etcd-endpoints="+etcd.Endpoint()
	leader := start(t, "--roles=ingest", "--config-dir", dir, store)
	replica := start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, replica, 1))
	leader.stop(t)
	s := opened(t, etcd.Endpoint())
	was, err := asSaid(t, s)
	if err != nil {
		t.Fatal(err)
	}
	deleteRecords(t, s, "Service/")
	key := editBy(t, s, was)
	eventually(t, patience, func() error { return replica.metric(`navarch_store_held{kind="Service"} 1`) })
	replica.hasProblem(t, "records/Service", "the 1 stored records are not the 3 that the leader wrote")
	if err := replica.ready(); err != nil {
		t.Errorf("a replica that has good records: %v", err)
	}
	if err := has(t, replica, webCluster, dbCluster)(); err != nil {
		t.Error(err)
	}
	younger := start(t, "--roles=xds", store)
	eventually(t, patience, refuses(t, younger, "records/Service: the 1 stored records are not the 3"))
	if out, err := adopt(t, etcd, "--yes"); err == nil || !strings.Contains(out, "an ingester leads") {
		t.Errorf("while somebody leads: %v %s", err, out)
	}
	if _, err := s.Client().Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if out, err := adopt(t, etcd); err != nil || !strings.Contains(out, "Service") || strings.Contains(out, "adopted") {
		t.Errorf("without --yes: %v %s", err, out)
	}
	if err := has(t, replica, webCluster, dbCluster)(); err != nil {
		t.Error(err)
	}
	mustAdopt(t, etcd)
	for _, d := range []*daemon{replica, younger} {
		eventually(t, patience, func() error {
			if err := d.ready(); err != nil {
				return err
			}
			return withoutWeb(t, d)()
		})
	}
	start(t, "--roles=ingest", "--config-dir", dir, store)
	for _, d := range []*daemon{replica, younger} {
		eventually(t, patience, has(t, d, webCluster, dbCluster))
	}
}
