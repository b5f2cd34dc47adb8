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

// memory identifies the newest record (the keyring without its keys) that this replica has verified. It is stored in
// the data directory, so that a rollback of etcd is detected after a restart.
type memory struct {
	Mesh        string `json:"mesh"`
	TrustDomain string `json:"trustDomain"`
	Epoch       uint64 `json:"epoch"`   // the highest epoch number that the record has used
	Version     uint64 `json:"version"` // version of the record; 0: no record is remembered
	Digest      string `json:"digest"`  // SHA-256 of the record, hexadecimal
	// Roots are the SHA-256 digests of the record's roots, hexadecimal, separated by spaces. Until a restarted replica
	// can decrypt the keyring, it trusts only these roots, unless Config.Roots is set. Empty: an older version of
	// Navarch wrote the file.
	Roots string `json:"roots,omitempty"`
}

// believed returns the roots of an unverified record that this replica may trust. These are the record's roots that
// Config.Roots also returns. If Config.Roots is nil, they are the record's roots that this replica remembers. If the
// replica remembers no roots, believed returns all roots of the record. The result is nil if the record's roots do not
// parse, or if Config.Roots fails or returns no root.
func (k *Keyring) believed(r *record) []*x509.Certificate {
	bundle, err := certificates(r.bundle())
	if err != nil {
		return nil
	}
	known := k.mem.Roots
	if k.cfg.Roots != nil {
		configured, err := k.cfg.Roots()
		if err != nil {
			k.log.Warn("keyring: the configured roots cannot be read; no unverified root is trusted", slog.Any(obs.KeyError, err))
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

// recall reads the memory from the file keyring.json in dir. It returns the zero memory if dir is "", or if the file is
// missing.
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
		return memory{}, fmt.Errorf("keyring: the remembered record in %s cannot be read: %w; without that file, this replica starts,"+
			" but may accept an older keyring from etcd", path, err)
	}
	return m, nil
}

// remember replaces the file keyring.json in dir atomically. If dir is "", remember stores nothing.
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

// refuses returns ErrRolledBack if the record r, with the digest sum, is older than the remembered record. It returns
// ErrRolledBack also if the two records have the same version but differ. A nil record counts as older. If no record is
// remembered, refuses returns nil.
func (m memory) refuses(r *record, sum []byte) error {
	switch {
	case m.Version == 0:
		return nil
	case r == nil:
		return fmt.Errorf("%w: the record is missing, epoch %d (version %d) is remembered", ErrRolledBack, m.Epoch, m.Version)
	case r.Highest < m.Epoch || r.Version < m.Version:
		return fmt.Errorf("%w: to epoch %d (version %d), epoch %d (version %d) is remembered",
			ErrRolledBack, r.Highest, r.Version, m.Epoch, m.Version)
	case r.Version == m.Version && hex.EncodeToString(sum) != m.Digest:
		return fmt.Errorf("%w: version %d differs from the remembered one", ErrRolledBack, r.Version)
	}
	return nil
}

// knows reports whether the record r, with the digest sum, is the remembered record.
func (m memory) knows(r *record, sum []byte) bool {
	return m.Version == r.Version && m.Epoch == r.Highest && m.Digest == hex.EncodeToString(sum)
}
