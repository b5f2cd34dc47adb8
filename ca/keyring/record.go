package keyring

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/seal"
)

// Status is the phase of an epoch. An epoch is one signing certificate, with its key and roots.
type Status string

// Phases of an epoch, in their order. The trust bundle has an epoch's roots in every phase except Retired. Only the
// Active epoch signs leaves. An aborted Prepared epoch becomes Retired at once.
const (
	Prepared Status = "prepared" // its root is published, and it waits to sign
	Active   Status = "active"
	Retiring Status = "retiring" // its leaves may still be in use
	Retired  Status = "retired"  // its key is deleted
)

const (
	schema         = 1
	statePath      = "keys/state"
	keysFolder     = "keys/"
	sealedFolder   = "keys/sealed/"
	keepRetired    = 16   // number of retired epochs that stay in the record
	maxRevoked     = 5000 // revoked certificates: the record then has 650 KB, and each list 175 KB
	maxDenied      = 1000 // denied identities; every inbound filter chain of every proxy lists them
	purposeKey     = "signing-key"
	purposeState   = "keyring-state"
	originSelf     = "self-signed"
	originCACerts  = "cacerts"
	originIstiod   = "istio-ca-secret" // the root that istiod made for itself
	clockTolerance = issue.Backdate    // proxies with slow clocks accept a certificate for this long after its end
)

// record is the keyring without keys and revocation lists, as one value in etcd. Every change compares the value's
// revision and replaces the whole value. The record contains no secrets. A sealed digest (stored.Tag) proves that a
// holder of the key encryption key wrote the record.
type record struct {
	Schema     int                `json:"schema"`
	Version    uint64             `json:"version"`    // number of changes of the record so far; never decreases
	Highest    uint64             `json:"highest"`    // the highest epoch number ever used
	Generation uint64             `json:"generation"` // number of changes of the trust bundle so far
	Epochs     []epoch            `json:"epochs"`     // by number
	Serials    map[string]revoked `json:"serials,omitempty"`
	Identities map[string]revoked `json:"identities,omitempty"`
}

type epoch struct {
	Number    uint64    `json:"number"` // unique; the first epoch has 1
	Status    Status    `json:"status"`
	Origin    string    `json:"origin"`
	Cert      []byte    `json:"cert"` // DER
	Chain     [][]byte  `json:"chain,omitempty"`
	Roots     [][]byte  `json:"roots"`
	Published uint64    `json:"published"`        // generation of the first bundle with the epoch's roots
	Forced    bool      `json:"forced,omitempty"` // the epoch may sign before all holders of certificates have its roots
	CRL       uint64    `json:"crl,omitempty"`    // number of the epoch's newest revocation list; 0: the epoch signs no lists
	Lists     [][]byte  `json:"lists,omitempty"`  // the user's own revocation lists that came with the CA, DER
	Created   time.Time `json:"created"`
	Since     time.Time `json:"since"` // time at which the epoch got its status
}

// revoked is the entry of a revoked certificate or a denied identity.
type revoked struct {
	At    time.Time `json:"at"`              // time of the revocation
	Epoch uint64    `json:"epoch,omitempty"` // epoch that issued the certificate; 0: unknown, so every revocation list has the certificate
	// Version is the version of the first record that denies the identity. It is 0 if the entry is for a certificate,
	// or if an older version of Navarch wrote the entry.
	Version uint64 `json:"version,omitempty"`
	// Until is the end of the certificate, or of an identity's last certificate. It is zero if this time is unknown.
	Until time.Time `json:"until,omitzero"`
}

func (r *record) clone() *record {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err) // cannot fail: every field can be encoded
	}
	c := &record{}
	if err := json.Unmarshal(raw, c); err != nil {
		panic(err)
	}
	return c
}

func (r *record) in(s Status) *epoch {
	for i := range r.Epochs {
		if r.Epochs[i].Status == s {
			return &r.Epochs[i]
		}
	}
	return nil
}

func (r *record) epoch(number uint64) *epoch {
	for i := range r.Epochs {
		if r.Epochs[i].Number == number {
			return &r.Epochs[i]
		}
	}
	return nil
}

// bundle returns the roots of all unretired epochs as DER, each once, oldest epoch first.
func (r *record) bundle() [][]byte {
	var out [][]byte
	for _, e := range r.Epochs {
		if e.Status == Retired {
			continue
		}
		for _, root := range e.Roots {
			if !slices.ContainsFunc(out, func(b []byte) bool { return bytes.Equal(b, root) }) {
				out = append(out, root)
			}
		}
	}
	return out
}

// add appends a new epoch with the certificates of an authority. The epoch is prepared at first. It becomes active at
// once if no epoch is active, or if all its roots are in the bundle already.
func (r *record) add(a *issue.Authority, origin string, now time.Time) *epoch {
	before := r.bundle()
	r.Highest++
	e := epoch{Number: r.Highest, Status: Prepared, Origin: origin, Cert: a.Certificate.Raw, Created: now, Since: now}
	for _, c := range a.Chain {
		e.Chain = append(e.Chain, c.Raw)
	}
	for _, c := range a.Roots {
		e.Roots = append(e.Roots, c.Raw)
	}
	for _, list := range a.Lists {
		e.Lists = append(e.Lists, list.Raw)
	}
	r.Epochs = append(r.Epochs, e)
	grew := r.rebundle(before)
	added := &r.Epochs[len(r.Epochs)-1]
	added.Published = r.Generation
	if r.in(Active) == nil || !grew {
		r.activate(added, now)
	}
	return added
}

// rebundle reports whether the present bundle differs from the given earlier bundle. If they differ, rebundle
// increments the generation.
func (r *record) rebundle(earlier [][]byte) bool {
	if slices.EqualFunc(earlier, r.bundle(), bytes.Equal) {
		return false
	}
	r.Generation++
	return true
}

func (r *record) activate(e *epoch, now time.Time) {
	if old := r.in(Active); old != nil {
		old.Status, old.Since = Retiring, now
	}
	e.Status, e.Since = Active, now
}

// retire ends an epoch, and drops the oldest retired epochs beyond keepRetired. The epoch's roots leave the bundle,
// unless another epoch in the bundle has them. The epoch's revocation lists and revoked certificates are dropped.
func (r *record) retire(e *epoch, now time.Time) {
	before, number := r.bundle(), e.Number
	e.Status, e.Since, e.CRL, e.Lists = Retired, now, 0, nil
	r.rebundle(before)
	for serial, v := range r.Serials {
		if v.Epoch == number {
			delete(r.Serials, serial)
		}
	}
	var gone []uint64
	for _, e := range r.Epochs {
		if e.Status == Retired {
			gone = append(gone, e.Number)
		}
	}
	if len(gone) > keepRetired {
		r.Epochs = slices.DeleteFunc(r.Epochs, func(e epoch) bool {
			return e.Status == Retired && e.Number <= gone[len(gone)-keepRetired-1]
		})
	}
}

// keyID returns a digest of the epoch's public key, hexadecimal; "unreadable" if the certificate does not parse.
func (e *epoch) keyID() string {
	c, err := x509.ParseCertificate(e.Cert)
	if err != nil {
		return "unreadable"
	}
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:10])
}

func sealedPath(number uint64) string { return fmt.Sprintf("%s%016x", sealedFolder, number) }
func crlPath(number uint64) string    { return fmt.Sprintf("keys/crl/%016x", number) }

// stored is the value of keys/state in etcd.
type stored struct {
	State json.RawMessage `json:"state"`
	Tag   []byte          `json:"tag"` // the sealed SHA-256 of State
}

func digest(raw []byte) []byte { sum := sha256.Sum256(raw); return sum[:] }

func (k *Keyring) context(number uint64, keyID, purpose string) seal.Context {
	return seal.Context{Mesh: k.cfg.Mesh, TrustDomain: k.cfg.TrustDomain.Name(), Epoch: number, KeyID: keyID, Purpose: purpose}
}

// parseRecord decodes the value of keys/state. The error matches seal.ErrNewer if the record's schema is newer than
// this build reads. Any other error means that the value does not decode, or that the schema is older.
func parseRecord(raw []byte) (*record, stored, error) {
	var s stored
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, s, fmt.Errorf("%s does not decode: %w", statePath, err)
	}
	var stated struct { // decoded first, because a newer schema may have changed the other fields
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(s.State, &stated); err == nil && stated.Schema > schema {
		return nil, s, fmt.Errorf("%s %w: schema %d, this build reads %d", statePath, seal.ErrNewer, stated.Schema, schema)
	}
	r := &record{}
	if err := json.Unmarshal(s.State, r); err != nil {
		return nil, s, fmt.Errorf("%s does not decode: %w", statePath, err)
	}
	if r.Schema != schema {
		return nil, s, fmt.Errorf("%s has schema %d, this build reads %d", statePath, r.Schema, schema)
	}
	return r, s, nil
}
