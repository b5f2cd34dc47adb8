package kv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// until reads states of a folder until one is as wanted.
func until(t *testing.T, states <-chan kv.Folder, what string, want func(kv.Folder) bool) kv.Folder {
	t.Helper()
	ctx := within(t)
	for {
		select {
		case f, open := <-states:
			if !open {
				t.Fatalf("%s: the channel was closed", what)
			}
			if want(f) {
				return f
			}
		case <-ctx.Done():
			t.Fatalf("%s: did not come", what)
		}
	}
}

func has(n int) func(kv.Folder) bool { return func(f kv.Folder) bool { return len(f.Blobs) == n } }

// A blob under a lease exists while its process lives, and is gone when the lease ends by release or by silence.
func TestLease(t *testing.T) {
	s := kvtest.Start(t)
	ctx := within(t)
	states, err := s.Follow(ctx, "members/")
	if err != nil {
		t.Fatal(err)
	}
	until(t, states, "empty", has(0))
	take := func(store *kv.Store, path string) *kv.Lease {
		t.Helper()
		lease, err := store.Lease(ctx, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lease.Put(ctx, path, []byte("1")); err != nil {
			t.Fatal(err)
		}
		return lease
	}
	quiet := s.Connect()
	given, silent := take(s.Store, "members/a"), take(quiet, "members/b")
	if f := until(t, states, "two members", has(2)); f.Blobs[0].Path != "members/a" || string(f.Blobs[1].Raw) != "1" || f.Blobs[1].Revision != f.Revision {
		t.Fatalf("%+v", f)
	}
	if err := given.Release(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, states, "one was given back", func(f kv.Folder) bool { return len(f.Blobs) == 1 && f.Blobs[0].Path == "members/b" })
	<-given.Lost()
	if _, err := given.Put(ctx, "members/a", nil); !errors.Is(err, kv.ErrLeaseLost) {
		t.Fatalf("written under a lease that was given back: %v", err)
	}
	if err := quiet.Client().Close(); err != nil { // as a process that is killed
		t.Fatal(err)
	}
	<-silent.Lost()
	until(t, states, "one went silent", has(0))
	if _, err := take(s.Store, "members/c").Put(ctx, "records/x", nil); err == nil {
		t.Error("a record was written under a lease")
	}
	for _, length := range []time.Duration{0, time.Millisecond, 1500 * time.Millisecond} {
		if _, err := s.Lease(ctx, length); err == nil {
			t.Errorf("a lease of %v", length)
		}
	}
}

// A replaced leader changes nothing, through any of its values; a condition that does not hold is a different error.
func TestChangeFenced(t *testing.T) {
	s := kvtest.Start(t)
	ctx := within(t)
	old := s.Elect("a")
	put := func(e kv.Epoch, at int64, raw string) (int64, error) {
		return s.ChangeFenced(ctx, e, kv.BlobChange{If: map[string]int64{"ring/current": at}, Put: []kv.Blob{{Path: "ring/current", Raw: []byte(raw)}}})
	}
	first, err := put(old, 0, "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(old, 0, "2"); !errors.Is(err, kv.ErrConflict) {
		t.Fatalf("made against another state: %v", err)
	}
	s.Depose(old)
	young := s.Elect("b")
	if _, err := put(old, first, "3"); !errors.Is(err, kv.ErrDeposed) {
		t.Fatalf("a deposed leader wrote: %v", err)
	}
	second, err := put(young, first, "4")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ChangeFenced(ctx, old, kv.BlobChange{Delete: []string{"ring/current"}}); !errors.Is(err, kv.ErrDeposed) {
		t.Fatalf("a deposed leader deleted: %v", err)
	}
	states, err := s.Follow(ctx, "ring/")
	if err != nil {
		t.Fatal(err)
	}
	if f := until(t, states, "the ring", has(1)); string(f.Blobs[0].Raw) != "4" || f.Blobs[0].Revision != second {
		t.Fatalf("%+v", f)
	}
	for _, bad := range []kv.BlobChange{{Delete: []string{"head"}}, {Put: []kv.Blob{{Path: "keys/a"}}}, {If: map[string]int64{"leader/x": 0}}} {
		if _, err := s.ChangeFenced(ctx, young, bad); err == nil {
			t.Errorf("%+v was done", bad)
		}
	}
	if _, err := s.ChangeFenced(ctx, kv.Epoch{}, kv.BlobChange{}); err == nil {
		t.Error("a change without an epoch")
	}
}

// A follower survives a restart of etcd, receives the changes of that time, and is not stopped by compaction; a slow
// one receives the newest state.
func TestFollow(t *testing.T) {
	s := kvtest.Start(t)
	ctx, cancel := context.WithCancel(within(t))
	follower := s.Connect()
	states, err := follower.Follow(ctx, "ring/")
	if err != nil {
		t.Fatal(err)
	}
	until(t, states, "empty", has(0))
	s.Put("ring/a", "1")
	until(t, states, "the first", has(1))
	s.Restart(s.Dir())
	s.Put("ring/b", "2")
	s.Delete(s.Prefix()+"ring/a", "")
	revision, err := s.Stat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(ctx, revision.Revision); err != nil {
		t.Fatal(err)
	}
	s.Put("members/x", "not this folder")
	until(t, states, "what happened meanwhile", func(f kv.Folder) bool { return len(f.Blobs) == 1 && f.Blobs[0].Path == "ring/b" })
	for range 50 {
		s.Put("ring/c", "3")
	}
	s.Put("ring/d", "4")
	until(t, states, "the newest", has(3))
	cancel()
	for range states {
	}
	if _, err := s.Follow(ctx, "records/"); err == nil {
		t.Error("records were followed")
	}
}

// The roles permit the accesses of replicas and leaders to the fleet's keys, and no others.
func TestFleetRoles(t *testing.T) {
	s := kvtest.Start(t)
	ctx := within(t)
	admin := s.Client()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	e := s.Elect("a")
	must(admin.RoleAdd(ctx, "root"))
	must(admin.UserAdd(ctx, "root", "secret"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	stores := map[kv.Role]*kv.Store{kv.RoleIngest: nil, kv.RoleXDS: nil}
	for role := range stores {
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
	for role := range stores {
		store, err := kv.Open(kv.Config{Mesh: kvtest.Mesh, Endpoints: s.Endpoints(), Username: string(role), Password: "secret"})
		must(store, err)
		t.Cleanup(func() { _ = store.Close() })
		stores[role] = store
	}
	replica, leader := stores[kv.RoleXDS], stores[kv.RoleIngest]
	lease, err := replica.Lease(ctx, 3*time.Second)
	must(lease, err)
	must(lease.Put(ctx, "members/a", nil))
	ring := kv.BlobChange{Put: []kv.Blob{{Path: "ring/current", Raw: []byte("1")}}}
	must(leader.ChangeFenced(ctx, e, ring))
	for store, folders := range map[*kv.Store][]string{replica: {"members/", "ring/", "leader/"}, leader: {"members/", "ring/"}} {
		for _, folder := range folders {
			states, err := store.Follow(ctx, folder)
			must(states, err)
			until(t, states, folder, has(1))
		}
	}
	if _, err := replica.ChangeFenced(ctx, e, ring); err == nil {
		t.Error("a replica wrote the ring")
	}
	foreign, err := leader.Lease(ctx, 3*time.Second)
	must(foreign, err)
	if _, err := foreign.Put(ctx, "members/a", nil); err == nil {
		t.Error("the leader wrote a replica's record")
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
}
