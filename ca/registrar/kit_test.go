package registrar

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/apiserver"
)

const signerName = "example.com/mesh"

var web = spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/web")

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// csr returns the CSR that a stock agent sends for web.
func csr(t testing.TB, key *ecdsa.PrivateKey, change ...func(*x509.CertificateRequest)) []byte {
	t.Helper()
	r := &x509.CertificateRequest{Subject: pkix.Name{Organization: []string{""}}, URIs: []*url.URL{web.URL()}}
	for _, f := range change {
		f(r)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// foreign is another CA.
type foreign struct {
	root *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newForeign(t testing.TB) *foreign {
	t.Helper()
	key := newKey(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &foreign{c, key}
}

// sign signs the CSR of an object unchanged, for the requested duration.
func (f *foreign) sign(t testing.TB, r request, change ...func(*x509.Certificate)) []byte {
	block, _ := pem.Decode(r.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Error(err)
		return nil
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Error(err)
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: asked.Subject, URIs: asked.URIs, KeyUsage: x509.KeyUsageDigitalSignature, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Duration(r.Spec.ExpirationSeconds) * time.Second), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	for _, f := range change {
		f(c)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, f.root, asked.PublicKey, f.key)
	if err != nil {
		t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// registrar returns a Registrar whose signers have the roots of f.
func (f *foreign) registrar(api *apiserver.Client) *Registrar {
	return New(Config{API: api, Signer: signerName, Domain: "example.com", MaxTTL: 90 * 24 * time.Hour,
		Roots: func(signer string) (own, all []*x509.Certificate) {
			if signer == signerName || signer == "example.com/other" {
				own = []*x509.Certificate{f.root}
			}
			return own, []*x509.Certificate{f.root}
		}})
}

// ask requests a certificate for web.
func ask(ctx context.Context, r *Registrar, csr []byte, signer string) (serve.Registered, error) {
	return r.Register(ctx, serve.Registration{CSR: csr, Identity: web, Signer: signer, TTL: time.Hour})
}

// good returns an error for an issued certificate that is not as requested.
func good(t testing.TB, got serve.Registered, key *ecdsa.PrivateKey, f *foreign) {
	t.Helper()
	if got.Issued == nil || got.Leaf == nil || !key.PublicKey.Equal(got.Leaf.PublicKey) || got.Leaf.URIs[0].String() != web.String() {
		t.Fatalf("it is not the caller's: %+v", got)
	}
	chain := got.Encode(got.Bundle)
	if len(chain) != 2 || chain[1] != string(issue.EncodeCertificates(f.root)) {
		t.Errorf("the answer has %d parts, or its last one is not the roots", len(chain))
	}
	if left := time.Until(got.Leaf.NotAfter); left > time.Hour || left < 50*time.Minute {
		t.Errorf("it lives for %v", left)
	}
}
