package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Files contains the user's own CA in PEM, with one field for each key of the Secret cacerts.
type Files struct {
	Cert  []byte // ca-cert.pem: the issuer of leaves; further certificates in it are treated like those of Chain
	Key   []byte // ca-key.pem: the key of the issuer, PKCS #8, SEC 1 or PKCS #1, not encrypted
	Chain []byte // cert-chain.pem: the certificates above the issuer; may also contain the issuer and the root; may be empty
	Root  []byte // root-cert.pem: the trust anchors
	Lists []byte // ca-crl.pem: revocation lists of issuers in the mesh; may be empty
}

// FromPEM parses a user's CA, and calls Verify to check that peers will accept the CA's leaves. Files.Lists may have at
// most 64 KiB, and at most one list of each issuer. Each list must be well-formed and unexpired, and must have a CRL
// number. If the files contain the issuer of a list, the issuer must have signed the list. No list may revoke
// ca-cert.pem or a certificate of its chain. The result does not share memory with f. Errors name the faulty file,
// except if a test signature fails.
func FromPEM(f Files, epoch uint64, td spiffeid.TrustDomain, now time.Time) (*Authority, error) {
	certs, err := Certificates(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("ca-cert.pem: %w", err)
	}
	if len(certs) == 0 {
		return nil, errors.New("ca-cert.pem: no certificate in it")
	}
	key, err := PrivateKey(f.Key)
	if err != nil {
		return nil, fmt.Errorf("ca-key.pem: %w", err)
	}
	above, err := Certificates(f.Chain)
	if err != nil {
		return nil, fmt.Errorf("cert-chain.pem: %w", err)
	}
	roots, err := Certificates(f.Root)
	if err != nil {
		return nil, fmt.Errorf("root-cert.pem: %w", err)
	}
	a := &Authority{Epoch: epoch, Key: key, Certificate: certs[0], Roots: roots}
	for _, c := range append(certs[1:], above...) {
		if !c.Equal(a.Certificate) && !selfSigned(c) && !slices.ContainsFunc(a.Chain, c.Equal) {
			a.Chain = append(a.Chain, c)
		}
	}
	if len(roots) == 0 {
		return nil, errors.New("root-cert.pem: no certificate in it")
	}
	if err := a.Verify(td, now); err != nil {
		return nil, err
	}
	if err := a.readLists(f.Lists, now); err != nil {
		return nil, fmt.Errorf("ca-crl.pem: %w", err)
	}
	return a, nil
}

// Verify returns an error if peers with a.Roots would refuse leaves signed by a for trust domain td. Causes include an
// unsupported or wrong key, a certificate that may not sign others or is not valid at now, and a path length that is
// too short. Other causes are a chain that does not reach a root, and name constraints that exclude td. Key and
// Certificate must not be nil. Errors name the faulty file, except if a test signature fails.
func (a *Authority) Verify(td spiffeid.TrustDomain, now time.Time) error {
	if err := checkKey(a.Key.Public()); err != nil {
		return fmt.Errorf("ca-key.pem: %w", err)
	}
	if k, ok := a.Certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !k.Equal(a.Key.Public()) {
		return errors.New("ca-key.pem: is not the key of ca-cert.pem")
	}
	below := a.Certificate
	for i, c := range a.path() {
		name := "ca-cert.pem"
		if i > 0 {
			name = fmt.Sprintf("cert-chain.pem: certificate %q", c.Subject)
			if err := below.CheckSignatureFrom(c); err != nil {
				return fmt.Errorf("%s did not sign %q (order: issuer first): %w", name, below.Subject, err)
			}
		}
		if err := checkCA(c, i, now); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		below = c
	}
	if err := a.ready(now); err != nil { // certificate and chain were checked above, so the roots are the cause
		return fmt.Errorf("root-cert.pem: %w", err)
	}
	return a.probe(td, now)
}

// checkCA returns an error if c cannot be an issuer above a leaf. The parameter issuersBelow is the number of issuers
// between c and the leaf.
func checkCA(c *x509.Certificate, issuersBelow int, now time.Time) error {
	switch {
	case !c.BasicConstraintsValid || !c.IsCA:
		return errors.New("is not a CA certificate (basic constraints: CA:TRUE is missing)")
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("key usage does not include keyCertSign")
	case (c.MaxPathLen > 0 || c.MaxPathLenZero) && c.MaxPathLen < issuersBelow:
		return fmt.Errorf("path length %d is too short for the %d issuers below it", c.MaxPathLen, issuersBelow)
	case now.Before(c.NotBefore):
		return fmt.Errorf("not valid before %s", stamp(c.NotBefore))
	case !now.Before(c.NotAfter):
		return fmt.Errorf("expired at %s", stamp(c.NotAfter))
	}
	return nil
}

// probe signs a leaf, which is discarded, and verifies it as a peer would. It finds faults that checkCA does not look
// for: in name constraints, extended key usages and the root.
func (a *Authority) probe(td spiffeid.TrustDomain, now time.Time) error {
	id, err := spiffeid.FromSegments(td, "ns", "probe", "sa", "probe")
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	t := x509.Certificate{URIs: uris(id), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	leaf, err := a.sign(a.Key.Public(), t, time.Minute, Policy{Backdate: -1, Jitter: -1}, now, nil)
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range a.Roots {
		roots.AddCert(c)
	}
	for _, c := range a.path() {
		between.AddCert(c)
	}
	for _, usage := range t.ExtKeyUsage {
		_, err := leaf.Leaf.Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		if err != nil {
			return fmt.Errorf("root-cert.pem: a certificate of this CA for %s is not accepted by these roots: %w", td, err)
		}
	}
	return nil
}

// Certificates parses all certificates of a PEM text. It returns nil for a text that is empty or white space. Text
// outside of PEM blocks is ignored. Certificates returns an error if a text that is not blank has no PEM block, or if a
// block is broken or not a certificate.
func Certificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %d is %.40q, not a CERTIFICATE", len(out)+1, block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out = append(out, c)
	}
	if n := bytes.Count(text, []byte("-----BEGIN ")); n != len(out) {
		return nil, fmt.Errorf("%d PEM blocks begin, but only %d can be read", n, len(out))
	}
	if len(out) == 0 && len(bytes.TrimSpace(text)) != 0 {
		return nil, errors.New("is not PEM")
	}
	return out, nil
}

// PrivateKey parses the first PEM block of a text as an ECDSA or RSA key, encoded as PKCS #8, SEC 1 or PKCS #1. A block
// EC PARAMETERS before the key is skipped; blocks after the key are ignored. Errors: the text has no block, the block
// is not a private key, or the key is broken, encrypted or of another kind. Errors do not show the key.
func PrivateKey(text []byte) (crypto.Signer, error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("no private key in it")
		}
		if block.Type == "EC PARAMETERS" {
			continue
		}
		if strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
			return nil, errors.New("the private key is encrypted; only an unencrypted key is accepted")
		}
		return parseKey(block)
	}
}

func parseKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("PEM block is %.40q, not a private key", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("the private key cannot be read as %s", block.Type)
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		return k, nil
	case *rsa.PrivateKey:
		return k, nil
	}
	return nil, fmt.Errorf("private key of kind %T; ECDSA and RSA are accepted", key)
}
