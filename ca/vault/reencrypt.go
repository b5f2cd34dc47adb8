package vault

import (
	"context"
	"errors"
	"fmt"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// Reencrypt implements the Sealer of store/ingest. It encrypts private keys that are sealed under an older key
// encryption key again, at most the given number, and the key of the MACs. A blob that does not open is skipped and
// reported. A provider that is away ends the call (seal.ErrUnavailable).
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

// reencrypt encrypts sealed again. It refuses a result that is already stale, since the caller would repeat for ever.
func (v *Vault) reencrypt(ctx context.Context, sealed []byte, about seal.Context, stale func([]byte) bool) ([]byte, error) {
	plain, err := v.Sealer.Open(ctx, sealed, about)
	if err != nil {
		return nil, err
	}
	fresh, err := v.Sealer.Seal(ctx, plain, about)
	clear(plain)
	if err == nil && stale(fresh) {
		err = fmt.Errorf("%w: it says that its key was rotated, and wraps with another one", seal.ErrUnavailable)
	}
	return fresh, err
}

// macReencrypted encrypts the unchanged key of the MACs again, by a transaction that compares its revision.
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
