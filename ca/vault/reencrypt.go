package vault

import (
	"context"
	"errors"
	"fmt"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// Reencrypt seals private keys again that are sealed under an older key encryption key, at most `most` of them. It
// implements the Sealer of store/ingest. The result maps records of the list to their new ciphertexts, which the
// caller writes; the records stay unchanged. The key of the MACs is sealed again, too, and written to the Store at
// once.
//
// A record whose private key does not open (seal.ErrTampered) is skipped, and is part of the error. Any other error
// ends the call, such as seal.ErrUnavailable, or that the key of the MACs cannot be read, opened or written. The result
// is valid with an error, too; it is nil if no record was tried.
func (v *Vault) Reencrypt(ctx context.Context, stored []*model.Secret, most int) (map[*model.Secret][]byte, error) {
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
		if len(out) == most {
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

// reencrypt opens a blob and seals its content under the present key encryption key. A result that is already stale is
// an error, since the caller would repeat for ever.
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

// macReencrypted seals the unchanged key of the MACs under the present key encryption key, if its blob is stale. If
// another process wrote the blob meanwhile, that process's blob stays.
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
