package keyring

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/obs"
)

// memory is the newest record that this replica has seen and verified. It outlives the process in the data directory, so
// that etcd cannot be turned back behind a replica's back.
type memory struct {
	Mesh        string `json:"mesh"`
	TrustDomain string `json:"trustDomain"`
	Epoch       uint64 `json:"epoch"`
	Version     uint64 `json:"version"`
	Digest      string `json:"digest"` // SHA-256 of the record, hexadecimal
	// Roots are those of the record, SHA-256 each, hexadecimal, with spaces between: a replica that starts and cannot unseal
	// believes no others. Empty where a version wrote it that did not remember them.
	Roots string `json:"roots,omitempty"`
}

// believed is the roots of a record that cannot be verified now, as far as they are configured or else remembered; all
// where neither is.
func (k *Keyring) believed(r *record) []*x509.Certificate {
	bundle, err := certificates(r.bundle())
	if err != nil {
		return nil
	}
	known := k.mem.Roots
	if k.cfg.Roots != nil {
		configured, err := k.cfg.Roots()
		if err != nil {
			k.log.Warn("keyring: no roots are believed while they cannot be verified", slog.Any(obs.KeyError, err))
			return nil
		}
		if known = fingerprints(configured); known == "" {
			return nil
		}
	}
	return slices.DeleteFunc(bundle, func(c *x509.Certificate) bool {
		return known != "" && !slices.Contains(strings.Fields(known), fingerprint(c))
	})
}

func fingerprints(roots []*x509.Certificate) string {
	var out []string
	for _, root := range roots {
		out = append(out, fingerprint(root))
	}
	return strings.Join(out, " ")
}

const memoryFile = "keyring.json"

// recall reads the memory; the zero memory where there is none, or no directory.
func recall(dir string) (memory, error) {
	var m memory
	if dir == "" {
		return m, nil
	}
	path := filepath.Join(dir, memoryFile)
	raw, err := durable.Read(path, maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		return memory{}, fmt.Errorf("what was remembered of the keyring, %s, is not believed: %w; without that file, once it was removed, an older keyring than was in force would be accepted of etcd", path, err)
	}
	return m, nil
}

// remember replaces the file as a whole, or not at all.
func (m memory) remember(dir string) error {
	if dir == "" {
		return nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	err = durable.Replace(filepath.Join(dir, memoryFile), 0o600, func(w io.Writer) error {
		_, err := w.Write(append(raw, '\n'))
		return err
	})
	if err != nil {
		return fmt.Errorf("remember the keyring: %w", err)
	}
	return nil
}

// refuses says why a record is not newer than, or the same as, what is remembered. nil for the record: there is none.
func (m memory) refuses(r *record, sum []byte) error {
	switch {
	case m.Version == 0:
		return nil
	case r == nil:
		return fmt.Errorf("%w: there is none, epoch %d (version %d) is remembered", ErrRolledBack, m.Epoch, m.Version)
	case r.Highest < m.Epoch || r.Version < m.Version:
		return fmt.Errorf("%w: to epoch %d (version %d), epoch %d (version %d) is remembered", ErrRolledBack, r.Highest, r.Version, m.Epoch, m.Version)
	case r.Version == m.Version && hex.EncodeToString(sum) != m.Digest:
		return fmt.Errorf("%w: version %d is another one than is remembered", ErrRolledBack, r.Version)
	}
	return nil
}

// knows says whether a record is the very one that was verified last.
func (m memory) knows(r *record, sum []byte) bool {
	return m.Version == r.Version && m.Epoch == r.Highest && m.Digest == hex.EncodeToString(sum)
}
