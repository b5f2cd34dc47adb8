package keyring

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/store/kv"
)

// CASource reads the user's own CA, which was made outside of Navarch. Only one goroutine calls Read at a time.
type CASource interface {
	// Read returns the present CA without waiting for a server. It returns an error if the CA cannot be read or is
	// incomplete. After an error the keyring adopts no CA, and a missing keyring is not created.
	Read() (UserCA, error)
}

// ErrNotRead is the error of CASource.Read until the source has tried to read the CA once. It may be wrapped.
var ErrNotRead = errors.New("the CA has not been read yet")

// UserCA is the CA that a CASource returns.
type UserCA struct {
	issue.Files
	From string // location of the CA, for messages
	// None states that the source certainly has no CA. The keyring then ignores the other fields.
	None bool
	// FirstOnly marks the CA that istiod made for itself. A mesh without a keyring continues with this CA, so that
	// istiod's certificates stay valid. An existing keyring ignores this CA and makes its own roots.
	FirstOnly bool
}

// origin returns the field Origin for an epoch (signing certificate) made from this CA.
func (u UserCA) origin() string {
	if u.FirstOnly {
		return originIstiod
	}
	return originCACerts
}

// sum returns a digest of the CA's files, to detect changes.
func (u UserCA) sum() [32]byte {
	all := sha256.New()
	for _, text := range [][]byte{u.Cert, u.Key, u.Chain, u.Root, u.Lists} {
		fmt.Fprintf(all, "%d\n%s", len(text), text)
	}
	return [32]byte(all.Sum(nil))
}

// authority parses and validates the CA. The error names the source.
func (k *Keyring) authority(u UserCA, epoch uint64) (*issue.Authority, error) {
	a, err := issue.FromPEM(u.Files, epoch, k.cfg.TrustDomain, k.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.From, err)
	}
	return a, nil
}

// Folder is a CASource: the path of a folder with the files of Istio's Secret cacerts. The files are ca-cert.pem,
// ca-key.pem, root-cert.pem, and optionally cert-chain.pem and ca-crl.pem.
type Folder string

// Read implements CASource. It returns an error if a file is unreadable, or if the folder or a required file is
// missing. UserCA.None and FirstOnly are never set. Kubernetes replaces the files of a Secret volume together, but
// possibly between two reads. Read therefore reads all files twice, and returns an error if the results differ.
func (dir Folder) Read() (UserCA, error) {
	var read [2]UserCA
	for i := range read {
		u := UserCA{From: "cacerts " + string(dir)}
		for _, file := range []struct {
			name     string
			into     *[]byte
			optional bool
		}{{"ca-cert.pem", &u.Cert, false}, {"ca-key.pem", &u.Key, false},
			{"cert-chain.pem", &u.Chain, true}, {"root-cert.pem", &u.Root, false}, {"ca-crl.pem", &u.Lists, true}} {
			raw, err := os.ReadFile(filepath.Join(string(dir), file.name))
			if err != nil && !(file.optional && os.IsNotExist(err)) {
				return u, fmt.Errorf("cacerts: %w", err)
			}
			*file.into = raw
		}
		read[i] = u
	}
	if read[0].sum() != read[1].sum() {
		return read[0], fmt.Errorf("cacerts: the files in %s are being changed", string(dir))
	}
	return read[0], nil
}

// errOwnCA is the error of a requested rotation in a mesh with the user's own CA.
var errOwnCA = errors.New("this mesh uses the user's own CA: to rotate, put a new CA into cacerts")

// refusesRotation returns nil if this process may publish a self-made root, and the reason if it may not. It also
// checks the origin of the active epoch in the record r, since navarchctl and some replicas have no Config.CACerts.
func (k *Keyring) refusesRotation(r *record) error {
	if a := r.in(Active); a != nil && a.Origin == originCACerts {
		return errOwnCA
	}
	u, err := k.userCA()
	if err != nil {
		return fmt.Errorf("it is unknown whether this mesh uses the user's own CA: %w", err)
	}
	if !u.None && !u.FirstOnly {
		return errOwnCA
	}
	return nil
}

// userCA reads the user's own CA. None is set if no source is configured, or if the source has no CA.
func (k *Keyring) userCA() (UserCA, error) {
	if k.cfg.CACerts == nil {
		return UserCA{None: true}, nil
	}
	return k.cfg.CACerts.Read()
}

// first returns the first authority of a mesh and its origin. The authority is the CA of the configured source, or a
// new root if there is no such CA.
func (k *Keyring) first() (*issue.Authority, string, error) {
	if err := k.cfg.Clock.Off(); err != nil {
		return nil, "", err
	}
	u, err := k.userCA()
	if err != nil {
		return nil, "", err
	}
	if u.None {
		a, err := issue.SelfSigned(k.cfg.TrustDomain, 1, k.cfg.RootTTL, k.cfg.Now(), nil)
		return a, originSelf, err
	}
	a, err := k.authority(u, 1)
	return a, u.origin(), err
}

// readCACerts adopts the user's CA if the CA has changed since this replica last adopted it.
func (k *Keyring) readCACerts(ctx context.Context) error {
	u, err := k.userCA()
	if err != nil || u.None || u.FirstOnly {
		return err
	}
	sum := u.sum()
	if sum == k.adopted {
		return nil
	}
	a, err := k.authority(u, 0)
	if err != nil {
		return err
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
