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

// CASource is where the user's own CA is read from. What it says is at hand: the loop of the keyring waits for it.
type CASource interface {
	// Read gives the CA as it is now. An error: it cannot be read, or is not whole; the keyring stays as it is, and where there is none yet
	// none is made.
	Read() (UserCA, error)
}

// ErrNotRead is in the error of a CASource that has not looked yet: it does in an instant, or says why it cannot.
var ErrNotRead = errors.New("it was not read yet")

// UserCA is a CA that was made elsewhere.
type UserCA struct {
	issue.Files
	From string // where it is, for people
	// None: there is no such CA, for certain; the rest is empty.
	None bool
	// FirstOnly: it is the CA that istiod made for itself. A mesh that has no keyring yet goes on with it, so that what it has issued stays
	// good; later it does not count, since roots are made here then.
	FirstOnly bool
}

// origin is what an epoch of this CA has for its Origin.
func (u UserCA) origin() string {
	if u.FirstOnly {
		return originIstiod
	}
	return originCACerts
}

// sum tells two CAs of a source from each other.
func (u UserCA) sum() [32]byte {
	all := sha256.New()
	for _, text := range [][]byte{u.Cert, u.Key, u.Chain, u.Root, u.Lists} {
		fmt.Fprintf(all, "%d\n%s", len(text), text)
	}
	return [32]byte(all.Sum(nil))
}

// authority checks the CA.
func (k *Keyring) authority(u UserCA, epoch uint64) (*issue.Authority, error) {
	a, err := issue.FromPEM(u.Files, epoch, k.cfg.TrustDomain, k.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.From, err)
	}
	return a, nil
}

// Folder is a CASource: a folder with ca-cert.pem, ca-key.pem, root-cert.pem, and, which may be missing, cert-chain.pem and ca-crl.pem.
type Folder string

// Read implements CASource. Kubernetes replaces the files of a Secret volume together, but not between two reads of ours: what does not read
// twice the same is tried again later.
func (dir Folder) Read() (UserCA, error) {
	var read [2]UserCA
	for i := range read {
		u := UserCA{From: "cacerts " + string(dir)}
		for _, file := range []struct {
			name     string
			into     *[]byte
			optional bool
		}{{"ca-cert.pem", &u.Cert, false}, {"ca-key.pem", &u.Key, false}, {"cert-chain.pem", &u.Chain, true}, {"root-cert.pem", &u.Root, false}, {"ca-crl.pem", &u.Lists, true}} {
			raw, err := os.ReadFile(filepath.Join(string(dir), file.name))
			if err != nil && !(file.optional && os.IsNotExist(err)) {
				return u, fmt.Errorf("cacerts: %w", err)
			}
			*file.into = raw
		}
		read[i] = u
	}
	if read[0].sum() != read[1].sum() {
		return read[0], fmt.Errorf("cacerts: %s is being changed", string(dir))
	}
	return read[0], nil
}

// errOwnCA is why a mesh with a CA of its own does not rotate by itself.
var errOwnCA = errors.New("this mesh has a CA of its own: put a new one into cacerts to rotate")

// userCA is the user's own CA, as it is now.
func (k *Keyring) userCA() (UserCA, error) {
	if k.cfg.CACerts == nil {
		return UserCA{None: true}, nil
	}
	return k.cfg.CACerts.Read()
}

// first makes or reads the first authority of a mesh.
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

// readCACerts takes over the user's CA where it has changed.
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
