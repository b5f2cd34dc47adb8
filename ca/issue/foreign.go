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

// ErrForeign means that another CA's response is too large or malformed, or that its certificate is not trusted or does
// not match the request.
var ErrForeign = errors.New("certificate of another CA")

// Bounds of another CA's response.
const (
	maxForeign = 64 << 10 // bytes of PEM
	maxChain   = 8        // certificates
)

// oidOrganization is the only subject attribute in CSRs of Istio's agents. Its value is empty there (istio:
// security/pkg/pki/util/generate_csr.go).
var oidOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}

// ParseExact parses one CSR in PEM that another CA will sign, and returns its public key. The key and the signature
// must meet the conditions of ParseCSR. The other CA copies the CSR's names, so the CSR must name id exactly once and
// nothing else. A subject or another extension is refused, because it might have a meaning for that CA or for verifiers
// of its certificates. For example, Kubernetes interprets an organizationName as a group. An empty organizationName is
// accepted. Errors are those of ParseCSR. They match ErrForeignName if the names, the subject or an extension is
// refused.
func ParseExact(text []byte, id spiffeid.ID) (crypto.PublicKey, error) {
	csr, err := parseCSR(text, id, nil)
	if err != nil {
		return nil, err
	}
	if n := len(csr.URIs); n != 1 {
		return nil, fmt.Errorf("%w: the CSR has %d URI names; it must name %s alone, because the CA copies names", ErrForeignName, n, id)
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
	Identity spiffeid.ID         // the only name of the leaf
	Key      crypto.PublicKey    // the key of the CSR
	Roots    []*x509.Certificate // roots of the CA; empty: every certificate is refused
	MaxTTL   time.Duration       // longest time from now until the leaf expires, to which Check adds the constant Backdate
}

// Check parses another CA's certificates in PEM, leaf first, and verifies the leaf against the requirements. text may
// have at most 64 KiB and 8 certificates. The leaf must not be a CA, and must be for both clients and servers. The leaf
// may begin at most 1 min after now, and must be valid for at least 1 min from now. A chain must lead from the leaf to
// one of Roots. In the result, Chain has the leaf and the certificates between the leaf and a root, and Epoch is 0.
// Every error matches ErrForeign, and no error matches ErrInvalid.
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
		return nil, fmt.Errorf("%w: %v", ErrForeign, err) // %v, not %w: the error must not match ErrInvalid, which blames the request
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
	clockLeeway     = time.Minute // NotBefore is at most this long after now
	shortestForeign = time.Minute // NotAfter is at least this long after now
)

// checkLeaf checks a leaf's content. It does not check the signature.
func (f Foreign) checkLeaf(leaf *x509.Certificate, now time.Time) error {
	key, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	usage := func(u x509.ExtKeyUsage) bool { return slices.Contains(leaf.ExtKeyUsage, u) }
	switch {
	case !ok || !key.Equal(f.Key):
		return errors.New("it is for another key, not that of the CSR")
	case leaf.IsCA:
		return errors.New("it is a CA's certificate, not a leaf")
	case len(leaf.URIs) != 1:
		return fmt.Errorf("it has %d URI names, want %s alone", len(leaf.URIs), f.Identity)
	case leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return errors.New("its key usage has no digitalSignature")
	case !usage(x509.ExtKeyUsageClientAuth) || !usage(x509.ExtKeyUsageServerAuth):
		return errors.New("it is not for both clients and servers (extended key usage)")
	case leaf.NotBefore.After(now.Add(clockLeeway)):
		return fmt.Errorf("it begins at %s, more than %v from now", stamp(leaf.NotBefore), clockLeeway)
	case leaf.NotAfter.Before(now.Add(shortestForeign)):
		return fmt.Errorf("it ends at %s, less than %v from now", stamp(leaf.NotAfter), shortestForeign)
	case leaf.NotAfter.After(now.Add(f.MaxTTL + Backdate)):
		return fmt.Errorf("it ends at %s, and certificates live for %v at most", stamp(leaf.NotAfter), f.MaxTTL)
	}
	return checkNames(leaf.Extensions, f.Identity, nil)
}
