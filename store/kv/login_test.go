package kv_test

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// A replica with a user for etcd starts while etcd is away, as one without does, and logs in once etcd is there.
func TestLogInOnceEtcdIsThere(t *testing.T) {
	server := kvtest.Start(t)
	endpoint := server.Endpoint()
	open := func(password string) (*kv.Store, error) {
		store, err := kv.Open(kv.Config{Mesh: kvtest.Mesh, Endpoints: []string{endpoint}, Username: "navarch", Password: password})
		if store != nil {
			t.Cleanup(func() { _ = store.Close() })
		}
		return store, err
	}
	server.Stop()
	late, err := open("s3cret")
	if err != nil {
		t.Fatalf("etcd is away: %v", err)
	}
	server.Restart(server.Dir())
	protect(t, server.Client(), "navarch", "s3cret")

	if _, err := late.Client().Get(t.Context(), late.Prefix()+"head"); err != nil {
		t.Errorf("etcd is there: %v", err)
	}
	if _, err := open("guess"); err == nil || !strings.Contains(err.Error(), "authentication failed") {
		t.Errorf("a wrong password while etcd is there: %v", err)
	}
}

// protect enables authentication, with one user who may read and write everything.
func protect(t *testing.T, client *clientv3.Client, user, password string) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{"root", user} {
		if _, err := client.UserAdd(ctx, name, password); err != nil {
			t.Fatal(err)
		}
		if _, err := client.UserGrantRole(ctx, name, "root"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
}
