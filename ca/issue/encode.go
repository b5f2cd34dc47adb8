package issue

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net/url"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Encode returns the strings for IstioCertificateResponse.cert_chain, in PEM. Each certificate of i.Chain is one
// element, the leaf first. The last element is the whole root bundle, or "" for an empty bundle. Istio's agents use the
// last element as their trust bundle (istio: security/pkg/server/ca/server.go, pkg/security secretcache).
func (i *Issued) Encode(bundle []*x509.Certificate) []string {
	out := make([]string, 0, len(i.Chain)+1)
	for _, c := range i.Chain {
		out = append(out, string(EncodeCertificates(c)))
	}
	return append(out, string(EncodeCertificates(bundle...)))
}

// EncodeCertificates returns the certificates as concatenated PEM. The result is nil if there are no certificates.
func EncodeCertificates(certs ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a Buffer does not fail
	}
	return b.Bytes()
}

func uris(id spiffeid.ID) []*url.URL { return []*url.URL{id.URL()} }
