package issue

import (
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ErrForeign: another CA's certificate is malformed, not trusted, or does not match the request.
var ErrForeign = errors.New("certificate of another CA")

// Bounds of another CA's response.
const (
	maxForeign = 64 << 10 // bytes of PEM
	maxChain   = 8        // certificates
)

// oidOrganization is the only attribute in the subjects of Istio's agents; its value is empty (istio:
// security/pkg/pki/util/generate_csr.go).
var oidOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}

// ParseExact parses a CSR for another CA, and returns its public key. That CA signs the CSR's names unchanged, so the
// CSR must name id and nothing else. A subject (Kubernetes takes an organizationName for a group) or an extension might
// have a meaning for that CA or its relying parties. An empty organizationName is accepted. Errors match ErrInvalid.
func ParseExact(text []byte, id spiffeid.ID) (crypto.PublicKey, error) {
	csr, err := parseCSR(text, id, nil)
	if err != nil {
		return nil, err
	}
	if n := len(csr.URIs); n != 1 {
		return nil, fmt.Errorf("%w: the CSR has %d URI names; a CA that copies its names needs %s alone", ErrForeignName, n, id)
	}
	for _, e := range csr.Extensions {
		if !e.Id.Equal(oidSubjectAltName) {
			return nil, fmt.Errorf("%w: it asks for the extension %v", ErrForeignName, e.Id)
		}
	}
	for _, part := range csr.Subject.Names {
		if value, is := part.Value.(string); !part.Type.Equal(oidOrganization) || !is || value != "" {
			return nil, fmt.Errorf("%w: it has a subject (%v)", ErrForeignName, part.Type)
		}
	}
	return csr.PublicKey, nil
}

// Foreign states the requirements for a certificate of another CA.
type Foreign struct {
	Identity spiffeid.ID
	Key      crypto.PublicKey    // of the CSR
	Roots    []*x509.Certificate // roots of the CA
	MaxTTL   time.Duration       // longest remaining lifetime; Backdate more is accepted
}

// Check parses another CA's certificates, leaf first, and verifies the leaf against the requirements. Issued.Chain is
// the leaf and the certificates between it and a root; Issued.Epoch is 0. Errors match ErrForeign, not ErrInvalid.
func (f Foreign) Check(text []byte, now time.Time) (*Issued, error) {
	if len(text) > maxForeign {
		return nil, fmt.Errorf("%w: the response has %d bytes; at most %d are accepted", ErrForeign, len(text), maxForeign)
	}
	certs, err := Certificates(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	case len(certs) == 0 || len(certs) > maxChain:
		return nil, fmt.Errorf("%w: %d certificates; 1 to %d are accepted", ErrForeign, len(certs), maxChain)
	}
	leaf := certs[0]
	if err := f.checkLeaf(leaf, now); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrForeign, err) // %v: the request is not at fault (ErrInvalid)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range f.Roots {
		roots.AddCert(c)
	}
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	at := now
	if at.Before(leaf.NotBefore) { // within clockLeeway
		at = leaf.NotBefore
	}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: roots,
		Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return nil, fmt.Errorf("%w: it does not lead to a root of this CA in the mesh configuration: %w", ErrForeign, err)
	}
	chain := chains[0]
	return &Issued{Leaf: leaf, Chain: chain[:max(len(chain)-1, 1)], Serial: SerialString(leaf.SerialNumber)}, nil
}

// Bounds of the validity of another CA's certificate.
const (
	clockLeeway     = time.Minute // largest NotBefore, after now
	shortestForeign = time.Minute // smallest NotAfter, after now
)

// checkLeaf checks a leaf's content, except its signature.
func (f Foreign) checkLeaf(leaf *x509.Certificate, now time.Time) error {
	key, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	usage := func(u x509.ExtKeyUsage) bool { return slices.Contains(leaf.ExtKeyUsage, u) }
	switch {
	case !ok || !key.Equal(f.Key):
		return errors.New("it is for another key than the CSR's")
	case leaf.IsCA:
		return errors.New("it is a CA's")
	case len(leaf.URIs) != 1:
		return fmt.Errorf("it has %d URI names, want %s alone", len(leaf.URIs), f.Identity)
	case leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return errors.New("its key usage has no digitalSignature")
	case !usage(x509.ExtKeyUsageClientAuth) || !usage(x509.ExtKeyUsageServerAuth):
		return errors.New("it is not for both clients and servers (extended key usage)")
	case leaf.NotBefore.After(now.Add(clockLeeway)):
		return fmt.Errorf("it begins at %s", stamp(leaf.NotBefore))
	case leaf.NotAfter.Before(now.Add(shortestForeign)):
		return fmt.Errorf("it ends at %s", stamp(leaf.NotAfter))
	case leaf.NotAfter.After(now.Add(f.MaxTTL + Backdate)):
		return fmt.Errorf("it ends at %s, and certificates live for %v at most", stamp(leaf.NotAfter), f.MaxTTL)
	}
	return checkNames(leaf.Extensions, f.Identity, nil)
}
