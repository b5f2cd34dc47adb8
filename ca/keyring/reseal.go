package keyring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

const (
	resealEvery  = time.Minute
	resealBudget = 5 * time.Second
)

// reseal checks for a rotation of the key encryption key, at most once per resealEvery. After a rotation it encrypts
// the sealed values of the keyring again, in one transaction. The sealed values are the record's tag (its encrypted
// digest) and the keys of unretired epochs. The record and its version do not change. The first of successive errors is
// logged. reseal takes at most resealBudget.
func (k *Keyring) reseal(ctx context.Context) {
	now := k.cfg.Now()
	if k.ring == nil || now.Sub(k.resealed) < resealEvery {
		return
	}
	k.resealed = now
	ctx, cancel := context.WithTimeout(ctx, resealBudget)
	defer cancel()
	err := k.reencrypt(ctx)
	switch {
	case err != nil && k.resealing == nil:
		k.log.Warn("keyring: cannot check for a rotated key encryption key or encrypt again, trying again", slog.Any(obs.KeyError, err))
	case err == nil && k.resealing != nil:
		k.log.Info("keyring: the check for a rotated key encryption key works again")
	}
	k.resealing = err
}

func (k *Keyring) reencrypt(ctx context.Context) error {
	stale, err := k.cfg.Sealer.Stale(ctx)
	if err != nil {
		return err
	}
	blobs, _, err := k.cfg.Store.Blobs(ctx, keysFolder, 0)
	if err != nil {
		return err
	}
	change := kv.BlobChange{If: map[string]int64{statePath: k.ring.revision}}
	var state *kv.Blob
	for i, blob := range blobs {
		if blob.Path == statePath {
			state = &blobs[i]
		}
		if !strings.HasPrefix(blob.Path, sealedFolder) || !stale(blob.Raw) {
			continue
		}
		fresh, err := k.reencryptKey(ctx, blob, stale)
		if err != nil {
			return err
		}
		if fresh == nil {
			continue
		}
		change.If[blob.Path] = blob.Revision
		change.Put = append(change.Put, *fresh)
	}
	if state == nil || state.Revision != k.ring.revision {
		k.resealed = time.Time{} // etcd has another record now: check again after the next refresh
		return nil
	}
	fresh, err := k.retag(ctx, *state, stale, len(change.Put) > 0)
	if err != nil || fresh == nil {
		return err
	}
	change.Put = append(change.Put, *fresh)
	switch _, err = k.cfg.Store.ChangeBlobs(ctx, change); {
	case errors.Is(err, kv.ErrConflict):
		k.resealed = time.Time{}
		return nil
	case err != nil:
		return err
	}
	k.log.Info("keyring: encrypted again, the key encryption key was rotated", slog.Int("keys", len(change.Put)-1))
	return nil
}

// reencryptKey returns a blob with the key of one epoch, encrypted again. The result is nil if the record in use has no
// epoch for the given blob.
func (k *Keyring) reencryptKey(ctx context.Context, blob kv.Blob, stale func([]byte) bool) (*kv.Blob, error) {
	at := slices.IndexFunc(k.ring.rec.Epochs, func(e epoch) bool { return sealedPath(e.Number) == blob.Path })
	if at < 0 {
		return nil, nil
	}
	e := &k.ring.rec.Epochs[at]
	about := k.context(e.Number, e.keyID(), purposeKey)
	plain, err := k.cfg.Sealer.Open(ctx, blob.Raw, about)
	if err != nil {
		return nil, err
	}
	raw, err := k.sealNewest(ctx, plain, about, stale)
	clear(plain)
	return &kv.Blob{Path: blob.Path, Raw: raw}, err
}

// retag seals the record's digest again, and returns the new value of keys/state. If force is false and the tag is not
// stale, retag returns nil.
func (k *Keyring) retag(ctx context.Context, state kv.Blob, stale func([]byte) bool, force bool) (*kv.Blob, error) {
	_, s, err := parseRecord(state.Raw)
	if err != nil || !force && !stale(s.Tag) {
		return nil, err
	}
	if s.Tag, err = k.sealNewest(ctx, digest(s.State), k.context(k.ring.rec.Highest, "", purposeState), stale); err != nil {
		return nil, err
	}
	value, err := json.Marshal(s)
	return &kv.Blob{Path: statePath, Raw: value}, err
}

// sealNewest seals plain. A result that is already stale is an error, since reseal would otherwise repeat for ever.
func (k *Keyring) sealNewest(ctx context.Context, plain seal.Secret, about seal.Context, stale func([]byte) bool) ([]byte, error) {
	raw, err := k.cfg.Sealer.Seal(ctx, plain, about)
	if err == nil && stale(raw) {
		err = fmt.Errorf("%w: the provider reports that its key was rotated, but wraps with another one", seal.ErrUnavailable)
	}
	return raw, err
}

// keks returns the ids of the key encryption keys of the keyring's blobs (seal.KEK), sorted, each once. It skips blobs
// that do not decode.
func keks(blobs []kv.Blob) []string {
	var out []string
	for _, blob := range blobs {
		raw := blob.Raw
		if blob.Path == statePath {
			_, s, err := parseRecord(raw)
			if err != nil {
				continue
			}
			raw = s.Tag
		} else if !strings.HasPrefix(blob.Path, sealedFolder) {
			continue
		}
		if id, err := seal.KEK(raw); err == nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SealedFolders are the folders of values that other packages seal: ca/vault's MAC key, and the kubeconfigs of other
// clusters (store/source/remote).
var SealedFolders = []string{"sealing/", "clusters/named/"}

// keksOfSecrets adds to a list the ids of the key encryption keys of Secrets (private keys and registry credentials)
// and of the values in SealedFolders. The result is sorted, without duplicates. Values that do not decode are skipped.
// Errors are those of the store.
func (k *Keyring) keksOfSecrets(ctx context.Context, known []string) ([]string, error) {
	state, err := k.cfg.Store.Load(ctx, 0)
	if err != nil {
		return nil, err
	}
	var sealed [][]byte
	for _, folder := range SealedFolders {
		blobs, _, err := k.cfg.Store.Blobs(ctx, folder, 0)
		if err != nil {
			return nil, err
		}
		for _, blob := range blobs {
			sealed = append(sealed, blob.Raw)
		}
	}
	for _, v := range state.Values {
		if key, err := v.Key(); err != nil || key.Kind != model.KindSecret {
			continue
		}
		if r, err := v.Record(); err == nil {
			sealed = append(sealed, r.(*model.Secret).Spec.GetKey())
		}
	}
	for _, raw := range sealed {
		if id, err := seal.KEK(raw); err == nil {
			known = append(known, id)
		}
	}
	slices.Sort(known)
	return slices.Compact(known), nil
}
