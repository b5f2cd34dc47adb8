package remote

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// Paths of the sealed kubeconfigs in etcd. The leader reads the Secrets and writes these values. The other processes
// read the values, so they need no right to read Secrets.
const (
	folder = "clusters/"       // parent of both paths below
	named  = folder + "named/" // prefix; the name of the cluster follows
	listed = folder + "listed" // marker: a complete set of clusters has been stored
)

const (
	sealAgain  = time.Minute     // interval at which the leader checks whether a value has to be sealed again with a new key encryption key
	storeAgain = 5 * time.Second // pause before a failed write, or a failed decryption, is retried
)

// Store is the part of kv.Store that this package uses. *kv.Store implements it.
type Store interface {
	// Blobs lists a folder at one revision, and returns that revision (kv.Store.Blobs). If since is 0, it lists all
	// blobs.
	Blobs(ctx context.Context, folder string, since int64) ([]kv.Blob, int64, error)
	// ChangeFenced writes a change if the epoch (a term of leadership) has not ended. It returns the revision of the
	// change (kv.Store.ChangeFenced). The error kv.ErrDeposed means that the epoch has ended.
	ChangeFenced(ctx context.Context, epoch kv.Epoch, c kv.BlobChange) (int64, error)
	// Follow sends the present state of a folder and its later states, until ctx ends (kv.Store.Follow). A slow reader
	// receives only the newest state. The error means that the folder is not allowed.
	Follow(ctx context.Context, folder string) (<-chan kv.Folder, error)
}

// Sealer encrypts the credentials of clusters; vault.Kubeconfigs implements it. A sealed value can be opened only under
// the name of its cluster.
type Sealer interface {
	// Seal encrypts a plaintext for one cluster. It must not retain the plaintext. An error means that the key
	// encryption key cannot be used, or that the encryption fails.
	Seal(ctx context.Context, cluster string, plain []byte) ([]byte, error)
	// Open returns the plaintext of a value that Seal returned for the same cluster. The caller owns the plaintext. An
	// error means that Seal did not return the value for this cluster, or that the key encryption key cannot be used.
	Open(ctx context.Context, cluster string, sealed []byte) ([]byte, error)
	// Stale returns a function that reports whether a value is sealed with a key encryption key other than the current
	// one. The error means that the current key cannot be determined.
	Stale(ctx context.Context) (func(sealed []byte) bool, error)
}

// credentials is the plaintext that is sealed for one cluster, as JSON.
type credentials struct {
	Secret     string `json:"secret"`
	Kubeconfig []byte `json:"kubeconfig"`
}

// folderCopy is the leader's copy of the stored values, for one term of leadership.
type folderCopy struct {
	Config
	epoch  kv.Epoch
	stored map[string]stored // by cluster name; nil: the values must be loaded from etcd
	listed bool              // the marker is stored
}

// stored is the value of one cluster in etcd.
type stored struct {
	digest [sha256.Size]byte // SHA-256 of the plaintext; zero: the value cannot be opened
	sealed []byte
}

// Lead stores the kubeconfigs of the Secrets in etcd, sealed, and keeps them up to date. The leader calls Lead beside
// Run, with the epoch of its term. Lead blocks until ctx ends, or a write fails because another process leads
// (kv.ErrDeposed). Without a Sealer it returns at once, and Problems reports each cluster. Other errors are logged, and
// the write is retried after 5 s or when the Secrets change.
func (k *Clusters) Lead(ctx context.Context, epoch kv.Epoch) {
	if k.Sealer == nil {
		return
	}
	s := &folderCopy{Config: k.Config, epoch: epoch}
	for {
		k.mu.Lock()
		wanted, known := k.wanted, k.listed
		k.mu.Unlock()
		pause := sealAgain
		if known {
			switch err := s.write(ctx, wanted); {
			case errors.Is(err, kv.ErrDeposed), ctx.Err() != nil:
				return
			case err != nil:
				s.stored, pause = nil, storeAgain
				k.logged.Warn("the credentials of other clusters cannot be stored for the other processes; trying again", "", obs.KeyError, err)
			}
		}
		select {
		case <-k.named:
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// write makes the stored values equal to the credentials of the wanted clusters. It writes only values whose content or
// key encryption key has changed, and deletes the values of other clusters.
func (s *folderCopy) write(ctx context.Context, wanted []candidate) error {
	if s.stored == nil {
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	stale, err := s.Sealer.Stale(ctx)
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	for name := range s.stored {
		gone[name] = true
	}
	for _, w := range wanted {
		delete(gone, w.cluster)
	}
	for name := range gone {
		if err := s.change(ctx, kv.BlobChange{Delete: []string{named + name}}); err != nil {
			return err
		}
		delete(s.stored, name)
	}
	for _, w := range wanted {
		if err := s.put(ctx, w, stale); err != nil {
			return err
		}
	}
	if s.listed {
		return nil
	}
	err = s.change(ctx, kv.BlobChange{Put: []kv.Blob{{Path: listed, Raw: []byte("{}")}}})
	s.listed = err == nil
	return err
}

// put stores the value of one cluster if its content or its key encryption key changed.
func (s *folderCopy) put(ctx context.Context, w candidate, stale func([]byte) bool) error {
	plain, err := json.Marshal(credentials{Secret: w.secret, Kubeconfig: w.kubeconfig})
	if err != nil {
		return err
	}
	defer clear(plain)
	digest := sha256.Sum256(plain)
	before, same := s.stored[w.cluster]
	if same = same && before.digest == digest; same && !stale(before.sealed) {
		return nil
	}
	sealed, err := s.Sealer.Seal(ctx, w.cluster, plain)
	if err != nil {
		return err
	}
	if same && stale(sealed) {
		// The provider reports a rotated key, and still encrypts with the previous one.
		return nil
	}
	if err := s.change(ctx, kv.BlobChange{Put: []kv.Blob{{Path: named + w.cluster, Raw: sealed}}}); err != nil {
		return err
	}
	s.stored[w.cluster] = stored{digest: digest, sealed: sealed}
	return nil
}

// change writes to etcd. It fails with kv.ErrDeposed if this process no longer leads.
func (s *folderCopy) change(ctx context.Context, c kv.BlobChange) error {
	_, err := s.Store.ChangeFenced(ctx, s.epoch, c)
	return err
}

// read loads the stored values, and decrypts each to compute its digest.
func (s *folderCopy) read(ctx context.Context) error {
	blobs, _, err := s.Store.Blobs(ctx, folder, 0)
	if err != nil {
		return err
	}
	s.stored, s.listed = map[string]stored{}, false
	for _, b := range blobs {
		if b.Path == listed {
			s.listed = true
			continue
		}
		cluster := strings.TrimPrefix(b.Path, named)
		one := stored{sealed: b.Raw}
		if plain, err := s.Sealer.Open(ctx, cluster, b.Raw); err == nil {
			one.digest = sha256.Sum256(plain)
			clear(plain)
		}
		s.stored[cluster] = one
	}
	return nil
}
