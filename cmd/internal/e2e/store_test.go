package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// refuses returns a check that a replica is not ready and refuses proxies, both with a reason.
func refuses(t *testing.T, d *daemon, reason string) func() error {
	return func() error {
		if err := d.ready(); err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), reason) {
			return fmt.Errorf("/ready: got %v, want 503 with %q", err, reason)
		}
		_, err := say(t, d.grpc, deltaMethod, request(t, node("shop", "client", "10.1.9.9"), xds.Cluster.URL()))
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), reason) {
			return fmt.Errorf("a stream: got %v, want Unavailable with %q", err, reason)
		}
		return nil
	}
}

// A replica of a mesh without any stored state serves nothing: an empty response would remove everything from proxies.
// Once a leader has written, it serves.
func TestEmptyStoreIsNotServed(t *testing.T) {
	parallel(t)
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	replica := start(t, "--roles=xds", store)
	eventually(t, patience, refuses(t, replica, "the store has no head: no leader has written yet"))
	start(t, "--roles=ingest", "--config-dir", folder(t), store)
	eventually(t, patience, serves(t, replica, 1))
}

// A stored value that does not decode was adopted. A replica with a good version of it continues with that version, and
// reports it. A replica without one is not ready, and names the key. The next leader writes a good value.
func TestUndecodableValue(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir, store := folder(t), "--etcd-endpoints="+etcd.Endpoint()
	leader := start(t, "--roles=ingest", "--config-dir", dir, store)
	older := start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, older, 1))
	leader.stop(t) // the leader would restore the value

	key := model.Key{Kind: model.KindService, Namespace: "shop", Name: "db", Origin: origin.New("", "files")}
	path := "/navarch/default/v1/" + strings.TrimPrefix(etcd.RecordKey(key), etcd.Prefix())
	if _, err := etcd.Client().Put(t.Context(), path, "\xff no record"); err != nil {
		t.Fatal(err)
	}
	mustAdopt(t, etcd)
	older.hasProblem(t, "records/Service//files/shop/db", "the last good version stays in effect")
	if err := older.ready(); err != nil {
		t.Errorf("a replica that has a good version: %v", err)
	}
	got, err := everything(t.Context(), older.grpc, node("shop", "client", "10.1.9.9"))
	if err != nil || got[xds.Cluster.URL()+" outbound|80||db.shop.svc.cluster.local"] == nil {
		t.Errorf("the last good version does not stand: %v", err)
	}

	younger := start(t, "--roles=xds", store)
	eventually(t, patience, refuses(t, younger, "records/Service//files/shop/db"))
	write(t, dir, "routes.yaml", routes(3))
	start(t, "--roles=ingest", "--config-dir", dir, store)
	eventually(t, patience, serves(t, younger, 3))
}

// Records of a kind of a newer build make no replica unready, neither a running nor a starting one. A record of a
// closing kind refuses new proxies of its namespace, with the reason; open streams and other namespaces are not
// affected. A leader that does not know the kind leaves the records unchanged, and restores deleted ones.
func TestUnknownKindInStore(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir, store := folder(t), "--etcd-endpoints="+etcd.Endpoint()
	leader := start(t, "--roles=ingest", "--config-dir", dir, store)
	runs := start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, runs, 1))
	leader.stop(t)
	put := func(name string, closing bool) string {
		raw, err := proto.Marshal(&model.RecordValue{Schema: model.Schema, Closing: closing})
		if err != nil {
			t.Fatal(err)
		}
		path := "/navarch/default/v1/records/Novel//files/shop/" + name
		if _, err := etcd.Client().Put(t.Context(), path, string(raw)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// As the leader of a newer build leaves them.
	put("skippable", false)
	path := put("closing", true)
	mustAdopt(t, etcd)
	write(t, dir, "routes.yaml", routes(3))
	leader = start(t, "--roles=ingest", "--config-dir", dir, store)
	eventually(t, patience, func() error { return leader.metric("navarch_leader 1") })
	starts := start(t, "--roles=xds", store)
	for _, d := range []*daemon{runs, starts} {
		eventually(t, patience, func() error {
			if err := d.ready(); err != nil {
				return err
			}
			_, err := everything(t.Context(), d.grpc, node("shop", "client", "10.1.9.9"))
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "records/Novel//files/shop/closing") {
				return fmt.Errorf("a proxy of the namespace: %w", err)
			}
			_, err = everything(t.Context(), d.grpc, node("backend", "client", "10.1.9.8"))
			return err
		})
	}
	starts.hasProblem(t, "records/Novel//files/shop/skippable", "the record is skipped")
	novel := opened(t, etcd.Endpoint())
	deleteRecords(t, novel, "Novel//files/shop/closing")
	eventually(t, 10*time.Second, func() error {
		resp, err := etcd.Client().Get(t.Context(), path)
		if err == nil && resp.Count != 1 {
			err = errors.New("it is not put back")
		}
		return err
	})
	leader.stop(t)
	deleteRecords(t, novel, "Novel//files/shop/closing")
	mustAdopt(t, etcd)
	write(t, dir, "routes.yaml", routes(4))
	start(t, "--roles=ingest", "--config-dir", dir, store)
	eventually(t, patience, serves(t, starts, 4))
}
