// Package issue makes certificates: a CSR and an identity in, a chain out. It is pure but for randomness and the time it
// is given.
//
// Owns: nothing.  Reads: nothing of ours.  Never: takes an identity from a CSR; keeps a key; reads a clock.
package issue

import (
	"crypto"
	"crypto/x509"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Authority is what signs: one epoch's key and certificate. Immutable.
type Authority struct {
	Epoch uint64
	Key   crypto.Signer
	// Certificate is the issuer of leaves; Chain is what lies between it and a root, the issuer first, the root left out
	// (empty where the issuer is itself a root).
	Certificate *x509.Certificate
	Chain       []*x509.Certificate
}

// Request is one certificate to be made.
type Request struct {
	CSR      []byte // PEM, as agents send it; only its public key counts
	Identity spiffeid.ID
	TTL      time.Duration // 0: the default
}

// Policy bounds what is issued.
type Policy struct {
	DefaultTTL time.Duration // 24 h
	MaxTTL     time.Duration // 90 d
	Backdate   time.Duration // NotBefore lies so far back: 5 min
	Jitter     float64       // NotAfter comes earlier by up to this part of the TTL: 0.1
}

// Issued is one certificate.
type Issued struct {
	Leaf   *x509.Certificate
	Chain  []*x509.Certificate // leaf first, then Authority.Certificate and Authority.Chain, roots left out
	Epoch  uint64
	Serial string // hexadecimal
}
