package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Authority is a signer: a CA key and its certificates. Immutable. Its formatted, logged and JSON forms do not contain
// the key.
type Authority struct {
	Epoch uint64        // number of the key in the mesh's keyring; each newer key has a higher number
	Key   crypto.Signer // the private key of Certificate; nil: not loaded, so the authority cannot sign
	// Certificate is the issuer of leaves. Chain has the certificates between Certificate and a root, the issuer of
	// Certificate first, without the root. Chain is empty if Certificate is a root or issued by one.
	Certificate *x509.Certificate
	Chain       []*x509.Certificate
	// Roots are the trust anchors that this authority needs in the mesh's bundle. If SelfSigned made the authority, the
	// only root is Certificate. Otherwise Roots are the user's roots (root-cert.pem).
	Roots []*x509.Certificate
	// Lists are the revocation lists that a user gave with the CA (ca-crl.pem): at most one per issuer, each with a CRL
	// number. Lists that the function CRL signs are not among them.
	Lists []*x509.RevocationList
}

// path returns Certificate and Chain.
func (a *Authority) path() []*x509.Certificate {
	return append([]*x509.Certificate{a.Certificate}, a.Chain...)
}

// End returns the time from which on the authority cannot sign. It is the earliest NotAfter of Certificate and Chain,
// or the latest NotAfter of Roots if that is earlier. Certificate must not be nil.
func (a *Authority) End() time.Time {
	end := a.Certificate.NotAfter
	for _, c := range a.Chain {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	var roots time.Time
	for _, c := range a.Roots {
		if c.NotAfter.After(roots) {
			roots = c.NotAfter
		}
	}
	if !roots.IsZero() && roots.Before(end) {
		end = roots
	}
	return end
}

func (a *Authority) ready(now time.Time) error {
	switch {
	case a == nil || a.Key == nil || a.Certificate == nil:
		return fmt.Errorf("%w: no key is loaded", ErrAuthority)
	case now.Before(a.Certificate.NotBefore):
		return fmt.Errorf("%w: epoch %d is not valid before %s", ErrAuthority, a.Epoch, stamp(a.Certificate.NotBefore))
	case !now.Before(a.End()):
		return fmt.Errorf("%w: epoch %d expired at %s", ErrAuthority, a.Epoch, stamp(a.End()))
	}
	return nil
}

// String describes the authority, without its key.
func (a Authority) String() string {
	if a.Certificate == nil {
		return fmt.Sprintf("authority epoch=%d key=[sealed]", a.Epoch)
	}
	return fmt.Sprintf("authority epoch=%d subject=%q keyid=%s until=%s key=[sealed]",
		a.Epoch, a.Certificate.Subject, hex.EncodeToString(a.Certificate.SubjectKeyId), stamp(a.Certificate.NotAfter))
}

// Format implements fmt.Formatter: no verb shows the key.
func (a Authority) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.String()) }

// LogValue implements slog.LogValuer: it logs String.
func (a Authority) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalJSON implements json.Marshaler: it encodes String.
func (a Authority) MarshalJSON() ([]byte, error) { return json.Marshal(a.String()) }

// SelfSigned makes an authority with a fresh P-256 key and a self-signed root, which signs leaves directly. The root is
// valid from now-Backdate until now+validity. Its subject contains the epoch and a part of the key's hash, so that
// different roots have different subjects. A nil random means crypto/rand. SelfSigned returns an error if the trust
// domain is zero, validity is below a second, or reading random or signing fails.
func SelfSigned(td spiffeid.TrustDomain, epoch uint64, validity time.Duration, now time.Time, random io.Reader) (*Authority, error) {
	if random == nil {
		random = rand.Reader
	}
	if td.IsZero() {
		return nil, fmt.Errorf("make root of epoch %d: no trust domain", epoch)
	}
	if validity < time.Second {
		return nil, fmt.Errorf("make root of epoch %d: validity %v is below 1s", epoch, validity)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, fmt.Errorf("make the key of root epoch %d: %w", epoch, err)
	}
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	number, err := serial(random)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: number,
		Subject: pkix.Name{
			Organization: []string{td.Name()},
			CommonName:   fmt.Sprintf("Navarch root %d %s", epoch, hex.EncodeToString(id[:4])),
		},
		NotBefore:             now.Add(-Backdate).UTC().Truncate(time.Second),
		NotAfter:              now.Add(validity).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		// One issuer may lie between root and leaf. This allows an old root to sign the key of a newer root, for
		// verifiers that lack the newer root. Navarch does not do that yet.
		MaxPathLen:   1,
		SubjectKeyId: id,
		URIs:         uris(td.ID()),
	}
	der, err := x509.CreateCertificate(random, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign root of epoch %d: %w", epoch, err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back root of epoch %d: %w", epoch, err)
	}
	return &Authority{Epoch: epoch, Key: key, Certificate: root, Roots: []*x509.Certificate{root}}, nil
}

// anchors reports whether c is a root. The certificate c is Certificate or one of Chain. It does not check the
// signatures of certificates in Roots, because it is called for every leaf, and the check would cost a quarter of the
// time of signing.
func (a *Authority) anchors(c *x509.Certificate) bool {
	if !bytes.Equal(c.RawSubject, c.RawIssuer) {
		return false
	}
	return slices.ContainsFunc(a.Roots, c.Equal) || selfSigned(c)
}

func selfSigned(c *x509.Certificate) bool {
	if !bytes.Equal(c.RawSubject, c.RawIssuer) {
		return false
	}
	if len(c.AuthorityKeyId) != 0 && len(c.SubjectKeyId) != 0 {
		return bytes.Equal(c.AuthorityKeyId, c.SubjectKeyId)
	}
	return c.CheckSignatureFrom(c) == nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
