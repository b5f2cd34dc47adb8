package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Identity is an issued certificate (the leaf) with its key. The exported fields do not contain the key. Immutable.
type Identity struct {
	URI       string    // the certificate's only URI name; the mesh's CA writes a SPIFFE ID
	Serial    string    // the serial number in lower-case hexadecimal without leading zeros
	NotBefore time.Time // start of the leaf's validity
	NotAfter  time.Time // end of the leaf's validity
	Issuer    string    // the issuer's distinguished name
	Chain     []byte    // PEM: the leaf, then the other certificates that the CA sent, without the root bundle

	cert tls.Certificate
}

// TLS returns the chain with its private key, for connections of this process. The result shares memory with i and must
// not be modified.
func (i *Identity) TLS() tls.Certificate { return i.cert }

// keyPEM is a private key in PEM. It prints as [sealed].
type keyPEM []byte

// Format implements fmt.Formatter, so that no verb shows the bytes.
func (keyPEM) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[sealed]")) }

// MarshalText implements encoding.TextMarshaler, so that JSON and slog do not show the bytes. It never fails.
func (keyPEM) MarshalText() ([]byte, error) { return []byte("[sealed]"), nil }

// certify makes a fresh key and requests a certificate for it. Function read verifies the response.
func (a *Agent) certify(ctx context.Context, with credential) (*Identity, keyPEM, []*x509.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, a.request(), key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a CSR: %w", err)
	}
	answer, err := a.cfg.sign(ctx, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), with)
	if err != nil {
		return nil, nil, nil, err
	}
	id, roots, err := read(answer, key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the CA's answer: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("encode the key: %w", err)
	}
	return id, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), roots, nil
}

// request returns the template of a CSR. If Config.Name is set, the template contains this identity, because Kubernetes
// signers read the identity from the CSR. The mesh's CA reads the identity from the credential.
func (a *Agent) request() *x509.CertificateRequest {
	if a.cfg.Name.IsZero() {
		return &x509.CertificateRequest{}
	}
	return &x509.CertificateRequest{URIs: []*url.URL{a.cfg.Name.URL()}}
}

// read parses and verifies a response of the CA. The response has the leaf, the leaf's issuers and the root bundle. The
// leaf must certify the given key, name one URI, be valid at present, and chain to the roots of the response.
func read(answer []string, key *ecdsa.PrivateKey) (*Identity, []*x509.Certificate, error) {
	if len(answer) < 2 {
		return nil, nil, fmt.Errorf("%d elements, want a certificate, its issuers, and the root bundle", len(answer))
	}
	roots, err := parseCertificates([]byte(answer[len(answer)-1]))
	if err != nil {
		return nil, nil, fmt.Errorf("root bundle: %w", err)
	}
	id := &Identity{cert: tls.Certificate{PrivateKey: key}}
	var chain []*x509.Certificate
	for i, element := range answer[:len(answer)-1] {
		certs, err := parseCertificates([]byte(element))
		if err != nil {
			return nil, nil, fmt.Errorf("element %d: %w", i, err)
		}
		chain = append(chain, certs...)
	}
	leaf := chain[0]
	between, anchors := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range chain {
		id.cert.Certificate = append(id.cert.Certificate, c.Raw)
		id.Chain = append(id.Chain, encode(c)...)
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	for _, r := range roots {
		anchors.AddCert(r)
	}
	if own, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || !own.Equal(&key.PublicKey) {
		return nil, nil, errors.New("the certificate is for another key")
	}
	if len(leaf.URIs) != 1 {
		return nil, nil, fmt.Errorf("the certificate names %d identities, want 1", len(leaf.URIs))
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Intermediates: between,
		Roots: anchors, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, nil, fmt.Errorf("the certificate does not chain to the roots that came with it: %w", err)
	}
	id.cert.Leaf = leaf
	id.URI, id.Serial, id.Issuer = leaf.URIs[0].String(), leaf.SerialNumber.Text(16), leaf.Issuer.String()
	id.NotBefore, id.NotAfter = leaf.NotBefore, leaf.NotAfter
	return id, roots, nil
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// parseCertificates parses PEM with at least one certificate and no other blocks. Broken blocks and text after the last
// block are errors.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return nil, fmt.Errorf("%d bytes that are not PEM", len(rest))
			}
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a PEM block %.40q among the certificates", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if n := bytes.Count(text, []byte("-----BEGIN ")); n != len(out) { // pem.Decode skips broken blocks
		return nil, fmt.Errorf("%d PEM blocks begin, but only %d can be decoded", n, len(out))
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in it")
	}
	return out, nil
}
