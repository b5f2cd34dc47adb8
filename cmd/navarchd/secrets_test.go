package main

import (
	"context"
	"strings"
	"testing"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// Which service account an identity proves: its own, of our trust domain, and nothing else.
func TestVerified(t *testing.T) {
	none := view.Identity{}.String()
	for _, c := range []struct {
		identity, want string
		bad            bool
	}{
		{"spiffe://mesh.example/ns/shop/sa/gateway", "service account shop/gateway", false},
		{"", none, false}, // plain text
		{"spiffe://other.example/ns/shop/sa/gateway", none, true},
		{"spiffe://mesh.example/shop", none, true},
		{"spiffe://mesh.example/ns/shop", none, true},
		{"spiffe://mesh.example", none, true},
		{"https://mesh.example/ns/shop/sa/gateway", none, true},
		{"gateway.shop", none, true},
	} {
		if got, err := verified(c.identity, "mesh.example"); got.String() != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %q %v", c.identity, got, err)
		}
	}
}

// A vault that is not there is nothing to those who are given it, not a pointer to nothing.
func TestNoVault(t *testing.T) {
	if sealerOf(nil) != nil || openerOf(nil) != nil {
		t.Error("a nil vault in an interface is not nil")
	}
	if s, err := newSealer(&config{}, nil); s != nil || err != nil {
		t.Errorf("a sealer without a key encryption key: %v %v", s, err)
	}
	if v, err := newVault(&config{}, nil, nil); v != nil || err != nil {
		t.Errorf("a vault without a sealer: %v %v", v, err)
	}
}

// A key file may be made in a mesh that has nothing sealed: neither a keyring nor Secrets, and where etcd says so.
func TestNothingSealed(t *testing.T) {
	for _, path := range []string{"keys/state", "keys/sealed/0000000000000001", "sealing/mac"} {
		t.Run(path, func(t *testing.T) {
			store := kvtest.Start(t).Store
			if err := nothingSealed(store)(t.Context()); err != nil {
				t.Errorf("an empty store: %v", err)
			}
			if _, err := store.ChangeBlobs(t.Context(), kv.BlobChange{Put: []kv.Blob{{Path: path, Raw: []byte("sealed")}}}); err != nil {
				t.Fatal(err)
			}
			if err := nothingSealed(store)(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("a store with %s: %v", path, err)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := nothingSealed(kvtest.Start(t).Store)(gone); err == nil {
		t.Error("nobody was asked, and nothing is sealed")
	}
}
