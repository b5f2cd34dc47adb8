package keyring

import (
	"context"
	"crypto"
)

// PrivateKeys are the signing keys that a replica has unsealed, by epoch: for tests that look for them where they must not
// be.
func (k *Keyring) PrivateKeys(ctx context.Context) (map[uint64]crypto.Signer, error) {
	out := map[uint64]crypto.Signer{}
	err := k.ask(ctx, func(context.Context) error {
		if k.ring != nil {
			for number, key := range k.ring.keys {
				out[number] = key.(signer).Signer
			}
		}
		return nil
	})
	return out, err
}

// Seeded is closed once a replica has counted what the journal had when it started.
func (k *Keyring) Seeded() <-chan struct{} { return k.seeded }
