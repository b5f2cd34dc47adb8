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

// The data directory keeps the keyring that was last in force, sealed as in etcd. A replica that starts while etcd is
// away verifies and unseals this copy. With the keys in the copy, the replica makes the certificate of its own TLS
// server and verifies its callers. The copy also has the revocations. Until etcd answers again, the replica issues no
// first certificates. It renews certificates only within its allowance (allowance_file.go).

const (
	diskFile = "keyring.sealed"
	// maxKept bounds a file that is read from the data directory, in bytes. The keyring consists of a few blobs of at
	// most 1.5 MiB each.
	maxKept = 64 << 20
)

// diskBlob is a copy of one blob (value) in etcd.
type diskBlob struct {
	Path string `json:"path"`
	Raw  []byte `json:"raw"`
}

// save writes the blobs of a verified keyring to disk if they have changed. A failure is only logged, since etcd has
// the keyring.
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
		k.log.Warn("the keyring cannot be saved on disk: this replica cannot start while etcd is away", slog.Any(obs.KeyError, err))
		return
	}
	k.saved = sum
}

// restore puts the keyring on disk in force, for use while etcd does not answer. The parameter away is the error of
// etcd, for the log. No other keyring may be in force before the call. If the file is missing, restore does nothing.
// After an error no keyring is in force.
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
	k.log.Warn("etcd does not answer: until it does, the keyring on disk is in force, and only renewals are issued,"+
		" from this replica's allowance", slog.Any("keyring", state), slog.Any(obs.KeyError, away))
	return nil
}

// onDisk stands for the etcd revision of a keyring that was read from disk. etcd has no negative revisions.
const onDisk = -1
