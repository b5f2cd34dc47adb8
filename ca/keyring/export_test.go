package keyring

import (
	"context"
	"crypto"
)

// PrivateKeys returns the signing keys that a replica has unsealed, by epoch: for tests that search for them in places
// where they must not be.
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

// Seeded returns a channel that is closed once a replica has counted the journal's entries at its start.
func (k *Keyring) Seeded() <-chan struct{} { return k.seeded }
