// Package vault seals (encrypts) and opens (decrypts) the secrets of stored configuration: private keys and registry
// credentials of Secrets, and credentials of other clusters. A keyed MAC of the plain text is stored with each
// ciphertext of a Secret. If the plain text of a Secret still has the stored MAC, the Secret keeps its ciphertext.
//
// Owns: the key of the MACs, below sealing/ in etcd.
// Reads: ca/seal, store/kv.
// Never: writes an unsealed private key; shows a private key in an error.
package vault

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/pullsecret"
)

// Store has the methods of kv.Store that the vault uses for the key of the MACs.
type Store interface {
	// Blobs returns the blobs below a folder and the revision of the read, as kv.Store.Blobs does. The vault always
	// passes 0 as since, to read all blobs.
	Blobs(ctx context.Context, folder string, since int64) ([]kv.Blob, int64, error)
	// ChangeBlobs writes blobs in one transaction and returns the revision of the write, as kv.Store.ChangeBlobs does.
	// The error wraps kv.ErrConflict if a condition of the change does not hold.
	ChangeBlobs(ctx context.Context, c kv.BlobChange) (int64, error)
}

// Config configures New. Sealer and Mesh are required.
type Config struct {
	Sealer seal.Sealer
	Mesh   string // name of the mesh
	Store  Store  // nil: Open works, but Seal and Reencrypt fail
}

// Vault seals and opens private keys and registry credentials of Secrets. Make it with New. Safe for concurrent use.
// Its Config must not be changed.
type Vault struct {
	Config

	mu  sync.Mutex // held while mac is read or created, because every Seal needs mac
	mac seal.Secret
}

// New returns a Vault, without sending any request. It fails if the sealer or the mesh's name is missing.
func New(c Config) (*Vault, error) {
	if c.Sealer == nil || c.Mesh == "" {
		return nil, errors.New("vault: want a sealer and the name of the mesh")
	}
	return &Vault{Config: c}, nil
}

// Purposes are part of the associated data of ciphertexts. The other parts are the mesh and a name (KeyID). For a
// Secret's ciphertext, this name is NAMESPACE/NAME of the Secret.
const (
	purposeKey = "gateway-tls"
	purposeMAC = "mac-of-gateway-tls"
)

const (
	folder   = "sealing/"
	macPath  = folder + "mac"
	macBytes = 32
)

// errWithoutStore is the error of Seal and Reencrypt in a vault without a Store.
var errWithoutStore = errors.New("this vault has no store, so it cannot seal")

func (v *Vault) about(key model.Key) seal.Context {
	return seal.Context{Mesh: v.Mesh, KeyID: key.Namespace + "/" + key.Name, Purpose: purposeKey}
}

func (v *Vault) aboutMAC() seal.Context {
	return seal.Context{Mesh: v.Mesh, KeyID: "mac", Purpose: purposeMAC}
}

// Seal returns the ciphertext and the MAC of plain, which is the private key or the registry credentials of a Secret.
// It implements the Sealer of store/ingest. The argument stored is the Secret's previous record, or nil. If this record
// has a ciphertext and an equal MAC, Seal returns the record's ciphertext without copying it. Seal does not retain
// plain.
//
// The first call reads the key of the MACs from the Store, or creates the key there. Seal fails with an error of the
// Sealer or of the Store, or if the vault has no Store. After an error, the results are not to be used.
func (v *Vault) Seal(ctx context.Context, key model.Key, plain model.PrivateKey,
	stored *model.SecretSpec) (sealed, mac []byte, err error) {
	macKey, err := v.macKey(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("key of the MACs: %w", err)
	}
	mac = v.sum(macKey, key, plain)
	if len(stored.GetKey()) > 0 && hmac.Equal(mac, stored.GetMac()) {
		return stored.GetKey(), mac, nil
	}
	sealed, err = v.Sealer.Seal(ctx, seal.Secret(plain), v.about(key))
	return sealed, mac, err
}

// sum returns the MAC of a private key and its Secret's name. Without the name, equal MACs would reveal equal keys.
func (v *Vault) sum(macKey seal.Secret, key model.Key, private model.PrivateKey) []byte {
	h := hmac.New(sha256.New, macKey)
	for _, part := range []string{"navarch.io/vault/1", v.Mesh, key.Namespace, key.Name} {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part)))) // a hash never fails
		_, _ = h.Write([]byte(part))
	}
	_, _ = h.Write(private)
	return h.Sum(nil)
}

// Open decrypts the private key, or the registry credentials, of a Secret's record. The caller owns the result. The
// record has registry credentials if spec lists registries. The error wraps seal.ErrTampered if the ciphertext is
// missing, was changed, or was made for another Secret or mesh. It also wraps seal.ErrTampered if the plain text does
// not match the record's certificate or registries. It wraps seal.ErrNewer if a newer build made the ciphertext. It
// wraps seal.ErrUnavailable if the provider of the key encryption key does not answer, or does not have this key. In
// this case a retry may help.
func (v *Vault) Open(ctx context.Context, key model.Key, spec *model.SecretSpec) (model.PrivateKey, error) {
	plain, err := v.Sealer.Open(ctx, spec.GetKey(), v.about(key))
	if err != nil {
		return nil, err
	}
	if len(spec.GetRegistries()) > 0 {
		if has, err := pullsecret.Registries(plain); err != nil || !slices.Equal(has, spec.GetRegistries()) {
			return nil, fmt.Errorf("open %s: %w: the credentials do not match the registries of the record", key, seal.ErrTampered)
		}
		return model.PrivateKey(plain), nil
	}
	if _, err := tls.X509KeyPair(spec.GetChain(), plain); err != nil {
		return nil, fmt.Errorf("open %s: %w: the private key does not match the certificate of the record", key, seal.ErrTampered)
	}
	return model.PrivateKey(plain), nil
}

// macKey reads or creates the key of the MACs. If several processes create a key at once, all use the key that is
// stored first.
func (v *Vault) macKey(ctx context.Context) (seal.Secret, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mac != nil {
		return v.mac, nil
	}
	if v.Store == nil {
		return nil, errWithoutStore
	}
	about := v.aboutMAC()
	for {
		blobs, _, err := v.Store.Blobs(ctx, folder, 0)
		if err != nil {
			return nil, err
		}
		for _, b := range blobs {
			if b.Path == macPath {
				v.mac, err = v.Sealer.Open(ctx, b.Raw, about)
				return v.mac, err
			}
		}
		fresh := make(seal.Secret, macBytes)
		_, _ = rand.Read(fresh) // never fails
		sealed, err := v.Sealer.Seal(ctx, fresh, about)
		if err != nil {
			return nil, err
		}
		_, err = v.Store.ChangeBlobs(ctx, kv.BlobChange{If: map[string]int64{macPath: 0}, Put: []kv.Blob{{Path: macPath, Raw: sealed}}})
		if err == nil {
			v.mac = fresh
			return v.mac, nil
		}
		if !errors.Is(err, kv.ErrConflict) {
			return nil, err
		}
	}
}
