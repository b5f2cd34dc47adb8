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

// Paths of the sealed kubeconfigs in etcd. The leader writes them, so that it alone needs the right to read the Secrets.
const (
	folder = "clusters/"
	named  = folder + "named/" // before the name of a cluster
	listed = folder + "listed" // marker, written after the first complete set of clusters
)

const (
	sealAgain  = time.Minute     // interval at which the leader checks whether stored kubeconfigs need a new key encryption key
	storeAgain = 5 * time.Second // pause before a failed write is retried
)

// Store is the part of kv.Store that this package uses.
type Store interface {
	Blobs(ctx context.Context, folder string, since int64) ([]kv.Blob, int64, error)
	ChangeFenced(ctx context.Context, epoch kv.Epoch, c kv.BlobChange) (int64, error)
	Follow(ctx context.Context, folder string) (<-chan kv.Folder, error)
}

// Sealer seals the credentials of clusters, each for its cluster alone (vault.Kubeconfigs).
type Sealer interface {
	Seal(ctx context.Context, cluster string, plain []byte) ([]byte, error)
	Open(ctx context.Context, cluster string, sealed []byte) ([]byte, error)
	// Stale returns a function that reports whether a blob is sealed under another key encryption key than the present one.
	Stale(ctx context.Context) (func(sealed []byte) bool, error)
}

// credentials is the plaintext that is sealed for one cluster.
type credentials struct {
	Secret     string `json:"secret"`
	Kubeconfig []byte `json:"kubeconfig"`
}

// shelf is a leader's copy of the folder during one term.
type shelf struct {
	Config
	epoch  kv.Epoch
	stored map[string]stored // by cluster; nil: the folder is to be read
	listed bool
}

// stored is the blob of one cluster.
type stored struct {
	digest [sha256.Size]byte // of the plaintext; zero: the blob cannot be opened
	sealed []byte
}

// Lead keeps the sealed kubeconfigs in etcd equal to those of the Secrets. It returns when ctx ends, when another process
// leads (kv.ErrDeposed), or at once without a Sealer: then Problems has a problem for each cluster. Other errors are
// logged and retried.
func (k *Clusters) Lead(ctx context.Context, epoch kv.Epoch) {
	if k.Sealer == nil {
		return
	}
	s := &shelf{Config: k.Config, epoch: epoch}
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

// write makes the folder equal to wanted. A cluster that is stored already is not written again, unless another key
// encryption key is in use by now.
func (s *shelf) write(ctx context.Context, wanted []candidate) error {
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

// put stores one cluster if its content or its key encryption key changed.
func (s *shelf) put(ctx context.Context, w candidate, stale func([]byte) bool) error {
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
		return nil // the provider reports a rotated key but still wraps with the previous one
	}
	if err := s.change(ctx, kv.BlobChange{Put: []kv.Blob{{Path: named + w.cluster, Raw: sealed}}}); err != nil {
		return err
	}
	s.stored[w.cluster] = stored{digest: digest, sealed: sealed}
	return nil
}

func (s *shelf) change(ctx context.Context, c kv.BlobChange) error {
	_, err := s.Store.ChangeFenced(ctx, s.epoch, c)
	return err
}

// read loads and opens the stored blobs.
func (s *shelf) read(ctx context.Context) error {
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
