package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// MaxCSR bounds a CSR, in bytes of PEM. The largest legitimate CSR, for an RSA key of 8192 bits, has 3 KiB.
const MaxCSR = 16 << 10

// Bounds of RSA keys, in bits. Beyond maxRSA one verification costs milliseconds.
const minRSA, maxRSA = 2048, 8192

var oidSubjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// ParseCSR parses one CSR in PEM, and returns its public key. The key must be ECDSA on P-256 or P-384, or RSA of 2048
// to 8192 bits with an odd exponent of at least 65537. The key must have signed the CSR. Signatures with MD5 or SHA-1
// are refused. Each subject alternative name (SAN) of the CSR must be id, or id with a trust domain from the argument
// aliases. A CSR without SANs is accepted. The CSR's subject is ignored, because Istio's agents send an empty
// organizationName. Errors match ErrInvalid, and one of ErrTooLarge (more than MaxCSR bytes), ErrMalformed (not exactly
// one CSR, or unreadable SANs), ErrWeakKey, ErrSignature and ErrForeignName.
func ParseCSR(text []byte, id spiffeid.ID, aliases ...spiffeid.TrustDomain) (crypto.PublicKey, error) {
	csr, err := parseCSR(text, id, aliases)
	if err != nil {
		return nil, err
	}
	return csr.PublicKey, nil
}

func parseCSR(text []byte, id spiffeid.ID, aliases []spiffeid.TrustDomain) (*x509.CertificateRequest, error) {
	if len(text) > MaxCSR {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(text), MaxCSR)
	}
	der, err := onePEM(text)
	if err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	// The key is checked first, which bounds the cost of verifying the signature.
	if err := checkKey(csr.PublicKey); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWeakKey, err)
	}
	switch csr.SignatureAlgorithm {
	case x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.MD5WithRSA, x509.MD2WithRSA, x509.UnknownSignatureAlgorithm:
		return nil, fmt.Errorf("%w: algorithm %v is not accepted", ErrSignature, csr.SignatureAlgorithm)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return csr, checkNames(csr.Extensions, id, aliases)
}

func onePEM(text []byte) ([]byte, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrMalformed)
	}
	if !bytes.HasPrefix(text, []byte("-----BEGIN ")) {
		return nil, fmt.Errorf("%w: does not begin with a PEM block", ErrMalformed)
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, fmt.Errorf("%w: no complete PEM block", ErrMalformed)
	case block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST":
		return nil, fmt.Errorf("%w: PEM block is %.40q, not a CERTIFICATE REQUEST", ErrMalformed, block.Type)
	case len(block.Headers) != 0:
		return nil, fmt.Errorf("%w: PEM block has headers", ErrMalformed)
	case len(bytes.TrimSpace(rest)) != 0:
		return nil, fmt.Errorf("%w: %d bytes after the PEM block", ErrMalformed, len(rest))
	case bytes.Count(text, []byte("-----BEGIN ")) != 1:
		// pem.Decode skips blocks that it cannot read.
		return nil, fmt.Errorf("%w: more than one PEM block", ErrMalformed)
	}
	return block.Bytes, nil
}

// checkKey returns an error if a public key is not supported for a leaf or an authority. Envoy accepts neither Ed25519
// nor P-224.
func checkKey(public crypto.PublicKey) error {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
			return fmt.Errorf("ECDSA on %s; P-256 and P-384 are accepted", k.Curve.Params().Name)
		}
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSA || n > maxRSA {
			return fmt.Errorf("RSA of %d bits; %d to %d are accepted", n, minRSA, maxRSA)
		}
		if k.E < 65537 || k.E&1 == 0 {
			return fmt.Errorf("RSA with exponent %d; odd ones from 65537 on are accepted", k.E)
		}
	default:
		return fmt.Errorf("%T; ECDSA and RSA are accepted", public)
	}
	return nil
}

// checkNames returns an error if a subject alternative name is neither id nor id with a trust domain from the argument
// aliases. It does not decode the extension with package x509, which skips unknown kinds of names.
func checkNames(extensions []pkix.Extension, id spiffeid.ID, aliases []spiffeid.TrustDomain) error {
	for _, e := range extensions {
		if !e.Id.Equal(oidSubjectAltName) {
			continue
		}
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(e.Value, &names); err != nil || len(rest) != 0 {
			return fmt.Errorf("%w: alternative names cannot be read", ErrMalformed)
		}
		for _, n := range names {
			if n.Class != asn1.ClassContextSpecific || n.Tag != 6 {
				return fmt.Errorf("%w: a name of kind %d (%.100q); only a SPIFFE URI is accepted", ErrForeignName, n.Tag, n.Bytes)
			}
			if !sameIdentity(string(n.Bytes), id, aliases) {
				return fmt.Errorf("%w: %.200q, but the caller is %s", ErrForeignName, n.Bytes, id)
			}
		}
	}
	return nil
}

func sameIdentity(uri string, id spiffeid.ID, aliases []spiffeid.TrustDomain) bool {
	asked, err := spiffeid.FromString(uri)
	if err != nil || asked.Path() != id.Path() {
		return false
	}
	return asked.TrustDomain() == id.TrustDomain() || slices.Contains(aliases, asked.TrustDomain())
}
