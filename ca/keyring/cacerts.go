package keyring

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/store/kv"
)

// readFiles reads the user's CA, and a digest of it. Kubernetes replaces the files of a Secret together, but not between
// two reads of ours: what does not read twice the same is tried again later.
func readFiles(dir string) (issue.Files, [32]byte, error) {
	var f issue.Files
	var sums [2][32]byte
	for i := range sums {
		all := sha256.New()
		for _, file := range []struct {
			name     string
			into     *[]byte
			optional bool
		}{{"ca-cert.pem", &f.Cert, false}, {"ca-key.pem", &f.Key, false}, {"cert-chain.pem", &f.Chain, true}, {"root-cert.pem", &f.Root, false}} {
			raw, err := os.ReadFile(filepath.Join(dir, file.name))
			if err != nil && !(file.optional && os.IsNotExist(err)) {
				return f, sums[0], fmt.Errorf("cacerts: %w", err)
			}
			*file.into = raw
			fmt.Fprintf(all, "%s %d\n%s", file.name, len(raw), raw)
		}
		sums[i] = [32]byte(all.Sum(nil))
	}
	if sums[0] != sums[1] {
		return f, sums[0], fmt.Errorf("cacerts: %s is being changed", dir)
	}
	return f, sums[0], nil
}

// first makes or reads the first authority of a mesh.
func (k *Keyring) first() (*issue.Authority, string, error) {
	if err := k.cfg.Clock.Off(); err != nil {
		return nil, "", err
	}
	if k.cfg.CACerts == "" {
		a, err := issue.SelfSigned(k.cfg.TrustDomain, 1, k.cfg.RootTTL, k.cfg.Now(), nil)
		return a, originSelf, err
	}
	f, _, err := readFiles(k.cfg.CACerts)
	if err != nil {
		return nil, "", err
	}
	a, err := issue.FromPEM(f, 1, k.cfg.TrustDomain, k.cfg.Now())
	if err != nil {
		return nil, "", fmt.Errorf("cacerts %s: %w", k.cfg.CACerts, err)
	}
	return a, originCACerts, nil
}

// readCACerts takes over the user's CA where its files have changed.
func (k *Keyring) readCACerts(ctx context.Context) error {
	if k.cfg.CACerts == "" {
		return nil
	}
	f, sum, err := readFiles(k.cfg.CACerts)
	if err != nil || sum == k.adopted {
		return err
	}
	a, err := issue.FromPEM(f, 0, k.cfg.TrustDomain, k.cfg.Now())
	if err != nil {
		return fmt.Errorf("cacerts %s: %w", k.cfg.CACerts, err)
	}
	err = k.update(ctx, func(r *record) (*record, []kv.Blob, error) {
		next, fresh, err := adopt(r, a, k.cfg.Now())
		if err != nil || !fresh {
			return next, nil, err
		}
		put, err := k.enrol(ctx, next, a)
		return next, put, err
	})
	if err == nil {
		k.adopted = sum
	}
	return err
}
