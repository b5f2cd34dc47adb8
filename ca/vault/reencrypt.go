package vault

import (
	"context"
	"errors"
	"fmt"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// Reencrypt seals secrets (private keys and registry credentials) again if they are not sealed under the present key
// encryption key. The argument stored lists the records that contain the secrets. The argument limit is the maximum
// number of new ciphertexts. The result maps each affected record to its new ciphertext. Reencrypt changes no record.
// The caller writes the ciphertexts to the store. Reencrypt implements the Sealer of store/ingest.
//
// Reencrypt first checks the key of the MACs, by which the vault recognises unchanged secrets. If that key is not
// sealed under the present key encryption key, Reencrypt seals it again and writes it to the Store at once.
//
// A record whose secret does not open (seal.ErrTampered) is skipped, and its error is part of the returned error. Any
// other error ends the call. Such errors come from the Sealer or the Store, or report that the vault has no Store. The
// ciphertexts in the result are valid even with an error. The result is nil if the call failed before the first record.
func (v *Vault) Reencrypt(ctx context.Context, stored []*model.Secret, limit int) (map[*model.Secret][]byte, error) {
	stale, err := v.Sealer.Stale(ctx)
	if err != nil {
		return nil, err
	}
	if err := v.macReencrypted(ctx, stale); err != nil {
		return nil, fmt.Errorf("key of the MACs: %w", err)
	}
	out := map[*model.Secret][]byte{}
	var errs []error
	for _, r := range stored {
		if len(out) == limit {
			break
		}
		if !stale(r.Spec.GetKey()) {
			continue
		}
		sealed, err := v.reencrypt(ctx, r.Spec.Key, v.about(r.Key), stale)
		switch {
		case errors.Is(err, seal.ErrTampered):
			errs = append(errs, err)
		case err != nil:
			return out, errors.Join(append(errs, err)...)
		default:
			out[r] = sealed
		}
	}
	return out, errors.Join(errs...)
}

// reencrypt decrypts the ciphertext in the parameter sealed, and seals its content under the present key encryption
// key. It fails if the new ciphertext is stale already. Without this check the caller would repeat for ever.
func (v *Vault) reencrypt(ctx context.Context, sealed []byte, about seal.Context, stale func([]byte) bool) ([]byte, error) {
	plain, err := v.Sealer.Open(ctx, sealed, about)
	if err != nil {
		return nil, err
	}
	fresh, err := v.Sealer.Seal(ctx, plain, about)
	clear(plain)
	if err == nil && stale(fresh) {
		err = fmt.Errorf("%w: the provider reports a rotated key, but encrypts with a different key", seal.ErrUnavailable)
	}
	return fresh, err
}

// macReencrypted seals the key of the MACs under the present key encryption key, if its ciphertext in the Store is
// stale. The key of the MACs itself does not change. If another process has written a new ciphertext meanwhile, that
// one stays.
func (v *Vault) macReencrypted(ctx context.Context, stale func([]byte) bool) error {
	if v.Store == nil {
		return errWithoutStore
	}
	blobs, _, err := v.Store.Blobs(ctx, folder, 0)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if b.Path != macPath || !stale(b.Raw) {
			continue
		}
		fresh, err := v.reencrypt(ctx, b.Raw, v.aboutMAC(), stale)
		if err != nil {
			return err
		}
		_, err = v.Store.ChangeBlobs(ctx, kv.BlobChange{If: map[string]int64{macPath: b.Revision},
			Put: []kv.Blob{{Path: macPath, Raw: fresh}}})
		if err != nil && !errors.Is(err, kv.ErrConflict) {
			return err
		}
	}
	return nil
}
