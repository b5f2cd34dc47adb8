package main

import (
	"context"
	"fmt"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/vault"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
)

// newSealer makes the sealer, which encrypts secret values before they are stored. It returns nil if --kek is not set.
// Errors name this flag.
func newSealer(c *config, store blobs) (seal.Sealer, error) {
	if c.kek == "" {
		return nil, nil
	}
	provider, err := seal.NewProvider(c.kek, nothingSealed(store))
	if err != nil {
		return nil, fmt.Errorf("--kek: %w", err)
	}
	return seal.New(provider)
}

// blobs is the part of kv.Store that nothingSealed uses.
type blobs interface {
	Blobs(ctx context.Context, folder string, since int64) ([]kv.Blob, int64, error)
}

// nothingSealed returns a check that runs before a new key file is made. The check returns an error if etcd has
// something sealed (encrypted): a keyring, a kubeconfig of another cluster, or the MAC key, which exists once a Secret
// was sealed. In this case the key file was lost or is not mounted yet, and a new key could not open the sealed values.
func nothingSealed(store blobs) seal.First {
	return func(ctx context.Context) error {
		for _, folder := range append([]string{"keys/"}, keyring.SealedFolders...) {
			found, _, err := store.Blobs(ctx, folder, 0)
			if err != nil {
				return fmt.Errorf("it is not known whether etcd has sealed values: %w", err)
			}
			if len(found) > 0 {
				return fmt.Errorf("etcd has %s, which is sealed: put back the key file that sealed it", found[0].Path)
			}
		}
		return nil
	}
}

// newVault makes the vault for the private keys of Secrets. It returns nil if sealer is nil.
func newVault(c *config, sealer seal.Sealer, store *kv.Store) (*vault.Vault, error) {
	if sealer == nil {
		return nil, nil
	}
	return vault.New(vault.Config{Sealer: sealer, Mesh: c.mesh, Store: store})
}

// sealerOf and openerOf convert a vault to an interface; a nil vault becomes a nil interface.
func sealerOf(v *vault.Vault) ingest.Sealer {
	if v == nil {
		return nil
	}
	return v
}

func openerOf(v *vault.Vault) plan.Opener {
	if v == nil {
		return nil
	}
	return v
}
