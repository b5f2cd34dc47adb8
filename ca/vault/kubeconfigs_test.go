package vault_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/vault"
)

// A kubeconfig is stored unreadable, and opens for its own cluster and mesh alone.
// Promise: security-keys.md#who-reads-or-writes-etcd
func TestKubeconfigs(t *testing.T) {
	provider, err := seal.NewFile(filepath.Join(t.TempDir(), "kek.key"))
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := seal.New(provider)
	if err != nil {
		t.Fatal(err)
	}
	shop := vault.Kubeconfigs{Sealer: sealer, Mesh: "shop"}
	sealed, err := shop.Seal(t.Context(), "west", []byte("token: secret"))
	if err != nil || bytes.Contains(sealed, []byte("secret")) {
		t.Fatalf("%v, sealed: %q", err, sealed)
	}
	if plain, err := shop.Open(t.Context(), "west", sealed); err != nil || string(plain) != "token: secret" {
		t.Errorf("opened: %v", err)
	}
	if stale, err := shop.Stale(t.Context()); err != nil || stale(sealed) {
		t.Errorf("stale: %v", err)
	}
	for name, try := range map[string]func() ([]byte, error){
		"another cluster": func() ([]byte, error) { return shop.Open(t.Context(), "east", sealed) },
		"another mesh": func() ([]byte, error) {
			return vault.Kubeconfigs{Sealer: sealer, Mesh: "other"}.Open(t.Context(), "west", sealed)
		},
	} {
		if _, err := try(); !errors.Is(err, seal.ErrTampered) {
			t.Errorf("for %s: %v", name, err)
		}
	}
}
