package keyring

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"

	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// The keyring that was in force last outlives the process in the data directory, as etcd had it: sealed. A replica that starts while
// etcd is away unseals that one, verified like etcd's, and so has a certificate for its secure address, knows its callers, and knows who
// is revoked (issue 12, item 16). Until etcd is back, which has the journal, it renews certificates from an allowance that etcd had before
// (spend.go), and issues no first ones.

const (
	diskFile = "keyring.sealed"
	maxKept  = 64 << 20 // bytes of a file in the data directory that is read: the keyring is a few blobs of etcd's, of 1.5 MiB at most each
)

// diskBlob is one blob of etcd's.
type diskBlob struct {
	Path string `json:"path"`
	Raw  []byte `json:"raw"`
}

// save writes what a ring was unsealed from, where the file is another. That it cannot be written is logged: what etcd has is good
// without it.
func (k *Keyring) save(r *record, found map[string]kv.Blob) {
	if k.cfg.Dir == "" {
		return
	}
	all := []diskBlob{{statePath, found[statePath].Raw}}
	for _, e := range r.Epochs {
		if e.Status == Retired {
			continue
		}
		for _, path := range []string{sealedPath(e.Number), crlPath(e.Number)} {
			if blob, is := found[path]; is {
				all = append(all, diskBlob{path, blob.Raw})
			}
		}
	}
	raw, err := json.Marshal(all)
	sum := hex.EncodeToString(digest(raw))
	if err == nil && sum == k.saved {
		return
	}
	if err == nil {
		err = durable.Replace(filepath.Join(k.cfg.Dir, diskFile), 0o600, func(w io.Writer) error {
			_, err := w.Write(raw)
			return err
		})
	}
	if err != nil {
		k.log.Warn("the keyring is not kept on disk: this replica cannot start while etcd is away", slog.Any(obs.KeyError, err))
		return
	}
	k.saved = sum
}

// restore puts the ring on disk in force, where none is and etcd does not answer. An error: it cannot be used, and the State says so; it
// is tried again. Nothing is written to etcd by it, nor journalled.
func (k *Keyring) restore(ctx context.Context, away error) error {
	if k.cfg.Dir == "" {
		return nil
	}
	path := filepath.Join(k.cfg.Dir, diskFile)
	raw, err := durable.Read(path, maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []diskBlob
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	found := map[string]kv.Blob{}
	for _, one := range all {
		found[one.Path] = kv.Blob{Path: one.Path, Raw: one.Raw, Revision: onDisk}
	}
	var r *record
	if err == nil {
		r, _, err = k.verify(ctx, found[statePath])
	}
	var next *ring
	if err == nil {
		next, err = k.unseal(ctx, r, onDisk, found)
	}
	var state *State
	if err == nil {
		state, err = next.state()
	}
	if err != nil {
		return fmt.Errorf("the keyring on disk, %s: %w", path, err)
	}
	k.publish(next, state, onDisk)
	k.log.Warn("etcd does not answer: the keyring on disk is in force until it does, and no first certificates are issued, only renewals from this replica's allowance", slog.Any("keyring", state), slog.Any(obs.KeyError, away))
	return nil
}

// onDisk is the revision of what was read from disk: etcd has nothing at it.
const onDisk = -1
