package main

import (
	"context"
	"fmt"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/vault"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
)

// newSealer makes the one sealer of a process, that its keyring and its vault share; nil where no key encryption key is
// given.
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

// blobs is what nothingSealed needs of kv.Store.
type blobs interface {
	Blobs(ctx context.Context, folder string, since int64) ([]kv.Blob, int64, error)
}

// nothingSealed says whether a mesh is new: no keyring, and no key of the MACs, without which no Secret is sealed. A key file
// that is missing beside them was lost or is not mounted yet; one that is made in its place would open nothing.
func nothingSealed(store blobs) seal.First {
	return func(ctx context.Context) error {
		for _, folder := range []string{"keys/", "sealing/"} {
			found, _, err := store.Blobs(ctx, folder, 0)
			if err != nil {
				return fmt.Errorf("nobody knows whether something is sealed in etcd: %w", err)
			}
			if len(found) > 0 {
				return fmt.Errorf("etcd has %s, sealed: put back the file that it was sealed with", found[0].Path)
			}
		}
		return nil
	}
}

// newVault is what seals and opens the private keys of Secrets; nil where there is no sealer.
func newVault(c *config, sealer seal.Sealer, store *kv.Store) (*vault.Vault, error) {
	if sealer == nil {
		return nil, nil
	}
	return vault.New(vault.Config{Sealer: sealer, Mesh: c.mesh, Store: store})
}

// sealerOf and openerOf are a vault, or nothing that is nil in the interface's eyes, too.
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
