package kv_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// The table's grants are enough for the watch of a replica, and not enough to write records.
func TestRoles(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	ctx := within(t)
	admin := s.Client()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.RoleAdd(ctx, "root"))
	must(admin.UserAdd(ctx, "root", "secret"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	stores := map[kv.Role]*kv.Store{}
	for _, role := range []kv.Role{kv.RoleIngest, kv.RoleXDS, kv.RoleCA, kv.RoleOperator} {
		must(admin.RoleAdd(ctx, string(role)))
		for _, g := range kv.Grants(kvtest.Mesh, kv.DefaultRevision, role) {
			kind := clientv3.PermissionType(clientv3.PermRead)
			if g.Write {
				kind = clientv3.PermissionType(clientv3.PermReadWrite)
			}
			must(admin.RoleGrantPermission(ctx, string(role), g.Key, g.End, kind))
		}
		must(admin.UserAdd(ctx, string(role), "secret"))
		must(admin.UserGrantRole(ctx, string(role), string(role)))
	}
	must(admin.AuthEnable(ctx))
	for _, role := range []kv.Role{kv.RoleIngest, kv.RoleXDS, kv.RoleCA, kv.RoleOperator} {
		store, err := kv.Open(kv.Config{Mesh: kvtest.Mesh, Endpoints: s.Endpoints(), Username: string(role), Password: "secret"})
		must(store, err)
		t.Cleanup(func() { _ = store.Close() })
		stores[role] = store
	}
	updates := stores[kv.RoleXDS].Watch(ctx, kv.Position{Revision: e.Revision})
	revision := commit(t, stores[kv.RoleIngest], kv.Batch{Epoch: e, Puts: services(t, 1, 80)})
	if u := next(t, updates); u.Revision != revision || u.Err != nil {
		t.Fatalf("a replica's watch: %+v", u)
	}
	followsItself(t, stores[kv.RoleIngest], e, revision)
	if state := load(t, stores[kv.RoleXDS], 0); state.Complete != revision {
		t.Fatalf("a replica's list: %+v", state)
	}
	_, err := stores[kv.RoleXDS].Commit(ctx, kv.Batch{Epoch: e, Puts: services(t, 1, 81)})
	if !errors.Is(err, kv.ErrForbidden) || !strings.Contains(err.Error(), "permission denied") {
		t.Fatalf("a replica wrote a record: %v", err)
	}
	for _, role := range []kv.Role{kv.RoleIngest, kv.RoleCA} { // before the first seal, a process reads whether a sealed value exists
		for _, folder := range []string{"keys/", "sealing/"} {
			if _, _, err := stores[role].Blobs(ctx, folder, 0); err != nil {
				t.Errorf("%s asks for %s: %v", role, folder, err)
			}
		}
	}
	// a process with older rights continues without this access
	for role, may := range map[kv.Role]bool{kv.RoleCA: true, kv.RoleXDS: false} {
		if _, _, err := stores[role].Blobs(ctx, "allowances/", 0); (err == nil) != may || !may && !errors.Is(err, kv.ErrForbidden) {
			t.Errorf("%s reads allowances: %v", role, err)
		}
		if _, err := stores[role].ChangeBlobs(ctx, kv.BlobChange{Put: []kv.Blob{{Path: "allowances/x"}}}); (err == nil) != may {
			t.Errorf("%s writes an allowance: %v", role, err)
		}
		if size, err := stores[role].Size(ctx); err != nil || size.File == 0 || size.Quota == 0 {
			t.Errorf("%s asks how full etcd is: %+v, %v", role, size, err)
		}
	}
	removals(t, stores)
	if _, err := kv.Open(kv.Config{Mesh: kvtest.Mesh, Endpoints: s.Endpoints(), Username: "root", Password: "wrong"}); err == nil {
		t.Fatal("a wrong password was taken")
	}
}

// followsItself checks that a leader may read changes of its records, and their previous values.
func followsItself(t *testing.T, leader *kv.Store, e kv.Epoch, revision int64) {
	t.Helper()
	if u := next(t, leader.Watch(within(t), kv.Position{Revision: e.Revision})); u.Revision != revision || u.Err != nil {
		t.Fatalf("a leader's watch: %+v", u)
	}
	if _, err := leader.Before(within(t), []string{"Service///shop/s0000"}, revision); err != nil {
		t.Fatalf("a leader reads what was before: %v", err)
	}
}

// removals checks which roles may read and write the held removals.
func removals(t *testing.T, stores map[kv.Role]*kv.Store) {
	t.Helper()
	ctx := within(t)
	for role, may := range map[kv.Role]bool{kv.RoleOperator: false, kv.RoleXDS: true, kv.RoleCA: true} {
		lease, err := stores[role].Lease(ctx, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := stores[role].Blobs(ctx, "removals/", 0); (err == nil) != may {
			t.Errorf("%s reads what is held: %v", role, err)
		}
		if _, err := lease.Put(ctx, "removals/holds", []byte("x")); !errors.Is(err, kv.ErrForbidden) {
			t.Errorf("%s writes what is held: %v", role, err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
