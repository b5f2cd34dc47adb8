// Package issue makes certificates from CSRs and identities. Its functions are pure except for randomness, and take the
// time as an argument.
//
// Owns: nothing.
// Reads: its arguments.
// Never: takes an identity from a CSR; stores a key; reads a clock.
package issue

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Errors of requests, for errors.Is. The errors from ErrMalformed to ErrTTL match ErrInvalid. ErrInvalid means that the
// request is at fault, and that a repetition is useless (gRPC InvalidArgument). ErrAuthority means that the signer
// cannot sign at present (Unavailable). Any other error is internal.
var (
	ErrInvalid     = errors.New("invalid certificate request")
	ErrMalformed   = fmt.Errorf("%w: malformed CSR", ErrInvalid)
	ErrTooLarge    = fmt.Errorf("%w: CSR too large", ErrInvalid)
	ErrWeakKey     = fmt.Errorf("%w: weak or unsupported key", ErrInvalid)
	ErrSignature   = fmt.Errorf("%w: CSR signature", ErrInvalid)
	ErrForeignName = fmt.Errorf("%w: CSR asks for a name that is not the caller's", ErrInvalid)
	ErrIdentity    = fmt.Errorf("%w: identity", ErrInvalid)
	ErrTTL         = fmt.Errorf("%w: validity", ErrInvalid)
	ErrAuthority   = errors.New("signing authority not usable")
)

// Request is a request for one certificate.
type Request struct {
	CSR      []byte      // PEM; checked by ParseCSR; only its public key is put into the certificate
	Identity spiffeid.ID // the certificate's URI name; required, with a path
	// Aliases are trust domains that the CSR may use instead of the trust domain of Identity. Agents that started
	// before the mesh changed its trust domain use an alias. The certificate names Identity in any case.
	Aliases []spiffeid.TrustDomain
	TTL     time.Duration // 0: Policy.DefaultTTL; above Policy.MaxTTL: MaxTTL; negative or below 1 s: ErrTTL
	// Proven is the time when a token last proved the identity. A time that is not zero is recorded in the certificate,
	// from which the function Proven reads it.
	Proven time.Time
	// Origin identifies the token that first proved the identity. An Origin that is not zero is recorded in the
	// certificate, from which OriginOf reads it.
	Origin Origin
	// Names are the DNS names and IP addresses to add to the certificate. The server sets them, never the CSR.
	Names []string
}

// Backdate is subtracted from the current time for NotBefore of roots, for ThisUpdate of revocation lists, and by
// default (Policy.Backdate) for NotBefore of leaves. Clocks of a mesh may differ by 10 minutes in either direction, and
// a peer refuses a NotBefore in its future.
const Backdate = 15 * time.Minute

// Policy bounds the issued certificates. A zero field means its default.
type Policy struct {
	DefaultTTL time.Duration // lifetime from the time of issue, if no TTL is requested; 0: 24 h
	MaxTTL     time.Duration // longest lifetime; 0: 90 d
	Backdate   time.Duration // time by which NotBefore is in the past; 0: the constant Backdate; negative: none
	Jitter     float64       // the TTL is shortened by a random fraction up to Jitter, below 1; 0: 0.1; negative: not shortened
}

func (p Policy) withDefaults() Policy {
	if p.DefaultTTL == 0 {
		p.DefaultTTL = 24 * time.Hour
	}
	if p.MaxTTL == 0 {
		p.MaxTTL = 90 * 24 * time.Hour
	}
	if p.Backdate == 0 {
		p.Backdate = Backdate
	}
	if p.Jitter == 0 {
		p.Jitter = 0.1
	}
	p.Backdate, p.Jitter = max(p.Backdate, 0), max(p.Jitter, 0)
	return p
}

// Shortest returns the shortest lifetime that Jitter permits for a requested TTL. A ttl of 0 means the default TTL. A
// lifetime may still be shorter, by rounding to whole seconds or if the signer ends earlier.
func (p Policy) Shortest(ttl time.Duration) time.Duration {
	ttl = p.Longest(ttl)
	return ttl - time.Duration(p.withDefaults().Jitter*float64(ttl))
}

// Longest returns the longest lifetime of certificates for a requested TTL, at most MaxTTL. A ttl of 0 means the
// default TTL.
func (p Policy) Longest(ttl time.Duration) time.Duration {
	if p = p.withDefaults(); ttl == 0 {
		ttl = p.DefaultTTL
	}
	return min(ttl, p.MaxTTL)
}

// Default returns DefaultTTL, or 24 h if DefaultTTL is 0. It does not apply MaxTTL or Jitter.
func (p Policy) Default() time.Duration { return p.withDefaults().DefaultTTL }

// Check validates the policy: both TTLs are at least 1 s, and Jitter is below 1. A zero field is valid. The error names
// the first invalid field.
func (p Policy) Check() error {
	switch p = p.withDefaults(); {
	case p.DefaultTTL < time.Second:
		return fmt.Errorf("certificate policy: default TTL %v is below 1s", p.DefaultTTL)
	case p.MaxTTL < time.Second:
		return fmt.Errorf("certificate policy: maximum TTL %v is below 1s", p.MaxTTL)
	case math.IsNaN(p.Jitter) || p.Jitter >= 1:
		return fmt.Errorf("certificate policy: jitter %v is not below 1", p.Jitter)
	}
	return nil
}

// Issued is one certificate.
type Issued struct {
	Leaf   *x509.Certificate
	Chain  []*x509.Certificate // leaf first, then its issuers up to a root, without the root
	Epoch  uint64              // epoch of the signer; 0: another CA signed
	Serial string              // hexadecimal, as SerialString makes it
}

// SerialString formats a serial number as lower-case hexadecimal without leading zeros.
func SerialString(serial *big.Int) string { return serial.Text(16) }

// Issue makes a leaf for the request's identity and the CSR's public key. It is signed with a.Key. The leaf does not
// begin before a.Certificate, and does not end after a.End. The serial number and the jitter are read from random; if
// random is nil, from crypto/rand. Errors match ErrInvalid if the request is invalid. They match ErrAuthority if the
// authority is nil, incomplete, expired or not valid yet, or if the policy is invalid. Any other error means that
// reading random or signing failed.
func Issue(a *Authority, r Request, p Policy, now time.Time, random io.Reader) (*Issued, error) {
	if err := checkIdentity(r.Identity); err != nil {
		return nil, err
	}
	public, err := ParseCSR(r.CSR, r.Identity, r.Aliases...)
	if err != nil {
		return nil, err
	}
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t := x509.Certificate{URIs: uris(r.Identity), ExtKeyUsage: usages}
	name(&t, r.Names)
	if t.ExtraExtensions, err = proven(r.Proven); err != nil {
		return nil, err
	}
	origin, err := r.Origin.extensions()
	if err != nil {
		return nil, fmt.Errorf("%w: origin of the credential: %w", ErrIdentity, err)
	}
	t.ExtraExtensions = append(t.ExtraExtensions, origin...)
	return a.sign(public, t, r.TTL, p, now, random)
}

func checkIdentity(id spiffeid.ID) error {
	switch {
	case id.IsZero():
		return fmt.Errorf("%w: empty", ErrIdentity)
	case id.Path() == "":
		return fmt.Errorf("%w: %s names a trust domain, not a workload", ErrIdentity, id)
	}
	return nil
}

// sign completes and signs a template that already has its names and extended key usages.
func (a *Authority) sign(public crypto.PublicKey, t x509.Certificate,
	ttl time.Duration, p Policy, now time.Time, random io.Reader) (*Issued, error) {
	if random == nil {
		random = rand.Reader
	}
	if err := a.ready(now); err != nil {
		return nil, err
	}
	var err error
	if t.NotBefore, t.NotAfter, err = a.validity(ttl, p.withDefaults(), now, random); err != nil {
		return nil, err
	}
	if t.SerialNumber, err = serial(random); err != nil {
		return nil, err
	}
	if t.SubjectKeyId, err = keyID(public); err != nil {
		return nil, err
	}
	t.BasicConstraintsValid = true
	t.KeyUsage = x509.KeyUsageDigitalSignature
	if _, ok := public.(*rsa.PublicKey); ok {
		t.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	der, err := x509.CreateCertificate(random, &t, a.Certificate, public, a.Key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate with epoch %d: %w", a.Epoch, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the certificate signed with epoch %d: %w", a.Epoch, err)
	}
	chain := make([]*x509.Certificate, 0, 2+len(a.Chain))
	chain = append(chain, leaf)
	for _, c := range a.path() {
		if !a.anchors(c) {
			chain = append(chain, c)
		}
	}
	return &Issued{Leaf: leaf, Chain: chain, Epoch: a.Epoch, Serial: SerialString(leaf.SerialNumber)}, nil
}

// validity returns the leaf's interval in whole seconds, as in X.509. The interval lies within the signer's validity,
// and ends after now. Errors match ErrAuthority if the policy is invalid, and ErrTTL if the TTL is invalid. Other
// errors are those of the reader random.
func (a *Authority) validity(ttl time.Duration, p Policy, now time.Time, random io.Reader) (from, to time.Time, err error) {
	if err := p.Check(); err != nil {
		return from, to, fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	switch {
	case ttl == 0:
		ttl = p.DefaultTTL
	case ttl < time.Second:
		return from, to, fmt.Errorf("%w: %v asked for, at least 1s is needed", ErrTTL, ttl)
	}
	ttl = min(ttl, p.MaxTTL)
	var b [8]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return from, to, fmt.Errorf("read randomness for the expiry: %w", err)
	}
	part := float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
	ttl -= time.Duration(part * p.Jitter * float64(ttl))
	from, to = now.Add(-p.Backdate).UTC().Truncate(time.Second), now.Add(ttl).UTC().Truncate(time.Second)
	if !to.After(now) {
		to = to.Add(time.Second)
	}
	if start := a.Certificate.NotBefore; from.Before(start) {
		from = start
	}
	if end := a.End(); to.After(end) {
		to = end
	}
	return from, to, nil
}

// serial returns 128 random bits, never zero. It returns an error if random fails or yields only zeros.
func serial(random io.Reader) (*big.Int, error) {
	var b [16]byte
	for range 3 {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return nil, fmt.Errorf("read randomness for the serial number: %w", err)
		}
		if n := new(big.Int).SetBytes(b[:]); n.Sign() > 0 {
			return n, nil
		}
	}
	return nil, errors.New("read randomness for the serial number: only zeros")
}

// keyID returns a subject key identifier: the first 160 bits of SHA-256 over the key's bit string (RFC 7093, method 1).
func keyID(public crypto.PublicKey) ([]byte, error) {
	if k, ok := public.(*ecdsa.PublicKey); ok {
		point, err := k.Bytes()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrWeakKey, err)
		}
		sum := sha256.Sum256(point)
		return sum[:20], nil
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWeakKey, err)
	}
	var spki struct {
		Algorithm asn1.RawValue
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &spki); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWeakKey, err)
	}
	sum := sha256.Sum256(spki.Key.Bytes)
	return sum[:20], nil
}
