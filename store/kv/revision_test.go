package kv_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

func ofRevision(t *testing.T, s *kvtest.Server, revision, user string) *kv.Store {
	t.Helper()
	c := kv.Config{Mesh: kvtest.Mesh, Revision: revision, Endpoints: s.Endpoints()}
	if user != "" {
		c.Username, c.Password = user, "secret"
	}
	store, err := kv.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// Configuration and reports belong to one revision; the keys of the mesh belong to all.
func TestRevisions(t *testing.T) {
	s := kvtest.Start(t)
	ctx := within(t)
	old, canary := s.Store, ofRevision(t, s, "canary", "")
	first, second := epoch(t, old, "a"), epoch(t, canary, "a")
	updates := old.Watch(ctx, kv.Position{Revision: second.Revision})
	commit(t, canary, kv.Batch{Epoch: second, Puts: services(t, 3, 80)})
	commit(t, old, kv.Batch{Epoch: first, Puts: services(t, 1, 81)})
	if u := next(t, updates); u.Err != nil || len(u.Values) != 1 {
		t.Errorf("a mirror of the default revision was told first of %+v", u)
	}
	for store, want := range map[*kv.Store]int{old: 1, canary: 3, ofRevision(t, s, "default", ""): 1} {
		if state := load(t, store, 0); len(state.Values) != want || state.Head.Err != nil {
			t.Errorf("%s has %d records, want %d", store.Prefix(), len(state.Values), want)
		}
	}
	for _, f := range kv.Families {
		lease, err := canary.Lease(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		path := f.Path + "x"
		if _, err := lease.Put(ctx, path, []byte("1")); err != nil {
			if _, err = canary.ChangeBlobs(ctx, kv.BlobChange{Put: []kv.Blob{{Path: path, Raw: []byte("1")}}}); err != nil {
				continue // neither a blob of the fleet nor of the CA: head, records/, leader/, writer/
			}
		}
		for store, sees := range map[*kv.Store]bool{canary: true, old: f.Mesh} {
			blobs, _, err := store.Blobs(ctx, f.Path, 0)
			if err != nil || (len(blobs) == 1) != sees || sees && blobs[0].Path != path {
				t.Errorf("%s: %s has %+v, %v", store.Prefix(), f.Path, blobs, err)
			}
		}
	}
	if old.LeaderPath() == canary.LeaderPath() || old.WriterPath() != canary.WriterPath() {
		t.Errorf("elections at %s and %s, of writers at %s and %s", old.LeaderPath(), canary.LeaderPath(), old.WriterPath(), canary.WriterPath())
	}
	if _, err := kv.Open(kv.Config{Mesh: kvtest.Mesh, Revision: "a/b", Endpoints: s.Endpoints()}); err == nil {
		t.Error("a revision with a slash was opened")
	}
}

// The first revision that leads is promoted, unless a build that writes to Kubernetes unconditionally may lead the
// default revision; afterwards an operator decides.
func TestPromotion(t *testing.T) {
	for name, test := range map[string]struct {
		revision   string
		old        bool // the default revision has records
		want, then string
	}{
		"the default one":                {"default", false, "default", "default"},
		"the default one after an older": {"default", true, "default", "default"},
		"one from the start":             {"a", false, "a", "a"},
		"a canary beside an older build": {"a", true, "", "default"},
	} {
		t.Run(name, func(t *testing.T) {
			s := kvtest.Start(t)
			ctx := within(t)
			if test.old {
				commit(t, s.Store, kv.Batch{Epoch: epoch(t, s.Store, "old"), Puts: services(t, 1, 80)})
			}
			store := ofRevision(t, s, test.revision, "")
			e := epoch(t, store, "a")
			for _, revision := range []string{test.want, test.then} {
				if err := store.PromoteFirst(ctx, e); err != nil {
					t.Fatal(err)
				}
				if got, err := s.Promoted(ctx); err != nil || got != revision {
					t.Fatalf("%q is promoted, %v; want %q", got, err, revision)
				}
				if err := s.PromoteFirst(ctx, epoch(t, s.Store, "b")); err != nil { // the default one comes, or is there
					t.Fatal(err)
				}
			}
			if err := s.Promote(ctx, "b"); err != nil {
				t.Fatal(err)
			}
			if got, err := store.Promoted(ctx); err != nil || got != "b" {
				t.Errorf("%q is promoted, %v", got, err)
			}
			if err := s.Promote(ctx, ""); err == nil || strings.Contains(err.Error(), "%!") || s.Promote(ctx, "a/b") == nil {
				t.Error("a revision that cannot be was promoted")
			}
			depose(t, store, e)
			if err := s.Promote(ctx, "c"); err != nil {
				t.Fatal(err)
			}
			if err := store.PromoteFirst(ctx, e); err != nil { // its epoch is over: nothing is written
				t.Error(err)
			}
		})
	}
}

// A user with the rights of one revision cannot change keys of another one, and can perform all accesses of its own.
func TestRevisionGrants(t *testing.T) {
	s := kvtest.Start(t)
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
	must(admin.RoleAdd(ctx, "canary"))
	for _, g := range kv.Grants(kvtest.Mesh, "canary", kv.RoleIngest) {
		kind := clientv3.PermissionType(clientv3.PermRead)
		if g.Write {
			kind = clientv3.PermissionType(clientv3.PermReadWrite)
		}
		must(admin.RoleGrantPermission(ctx, "canary", g.Key, g.End, kind))
	}
	must(admin.UserAdd(ctx, "canary", "secret"))
	must(admin.UserGrantRole(ctx, "canary", "canary"))
	must(admin.AuthEnable(ctx))
	canary, other := ofRevision(t, s, "canary", "canary"), ofRevision(t, s, "", "canary")
	e := epoch(t, canary, "a")
	commit(t, canary, kv.Batch{Epoch: e, Puts: services(t, 1, 80)})
	must(nil, canary.PromoteFirst(ctx, e))
	if got, err := canary.Promoted(ctx); err != nil || got != "canary" {
		t.Errorf("%q is promoted: %v", got, err)
	}
	for _, path := range []string{"head", "records/Service///shop/x", "leader/x", "ring/x", "level/current"} {
		if _, err := canary.Client().Put(ctx, other.Prefix()+path, "x"); err == nil {
			t.Errorf("it wrote %s of the default revision", path)
		}
		must(canary.Client().Put(ctx, canary.Prefix()+path, fmt.Sprint("its own ", path)))
	}
}
