package main

import (
	"context"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// An absent vault becomes a nil interface, not an interface with a nil pointer.
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

// A key file may be created in a mesh without sealed data: neither a keyring nor Secrets, and only if etcd confirms
// that.
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
