package issue

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var foreignID = spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/web")

func foreignKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A CSR to another CA names only the caller's identity. It contains no other subject, which Kubernetes' signers turn
// into a user and groups, and no other extension.
// Promise: security-ca.md#signers-of-kubernetes
func TestParseExact(t *testing.T) {
	key := foreignKey(t)
	other := spiffeid.RequireFromString("spiffe://old.example/ns/shop/sa/web")
	for name, one := range map[string]struct {
		change func(*x509.CertificateRequest)
		says   string // empty: accepted
	}{
		"as navarch-agent would":   {func(*x509.CertificateRequest) {}, ""},
		"as pilot-agent does":      {func(r *x509.CertificateRequest) { r.Subject.Organization = []string{""} }, ""},
		"no name":                  {func(r *x509.CertificateRequest) { r.URIs = nil }, "0 URI names"},
		"the name twice":           {func(r *x509.CertificateRequest) { r.URIs = append(r.URIs, r.URIs[0]) }, "2 URI names"},
		"of another trust domain":  {func(r *x509.CertificateRequest) { r.URIs = []*url.URL{other.URL()} }, "but the caller is"},
		"a DNS name":               {func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes.default.svc"} }, "only a SPIFFE URI"},
		"a group of Kubernetes":    {func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} }, "it has a subject"},
		"an empty and another one": {func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"", "system:masters"} }, "it has a subject"},
		"a user of Kubernetes":     {func(r *x509.CertificateRequest) { r.Subject.CommonName = "admin" }, "it has a subject"},
		"basic constraints of a CA": {func(r *x509.CertificateRequest) {
			r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}}}
		}, "the extension 2.5.29.19"},
	} {
		r := &x509.CertificateRequest{URIs: []*url.URL{foreignID.URL()}}
		one.change(r)
		der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
		if err != nil {
			t.Fatal(err)
		}
		public, err := ParseExact(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), foreignID)
		switch {
		case one.says == "" && (err != nil || !key.PublicKey.Equal(public)):
			t.Errorf("%s: %v", name, err)
		case one.says != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), one.says)):
			t.Errorf("%s: %v, want %q", name, err, one.says)
		}
	}
}

// foreignCA signs templates, below an intermediate.
type foreignCA struct {
	root, middle *x509.Certificate
	key          *ecdsa.PrivateKey // of middle
}

func newForeignCA(t *testing.T, now time.Time) foreignCA {
	t.Helper()
	certify := func(name string, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key := foreignKey(t)
		c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour)}
		if parent == nil {
			parent, by = c, key
		}
		return signedBy(t, c, parent, &key.PublicKey, by), key
	}
	root, rootKey := certify("root", nil, nil)
	middle, key := certify("middle", root, rootKey)
	return foreignCA{root, middle, key}
}

func signedBy(t *testing.T, c, parent *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, by)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A certificate of another CA is accepted only if it is for the key and the identity of the caller, is the only one, is
// not valid for longer than allowed, and leads to a known root of that CA.
// Promise: security-ca.md#signers-of-kubernetes
func TestForeignCheck(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	ca, stranger, key := newForeignCA(t, now), newForeignCA(t, now), foreignKey(t)
	other := spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/other")
	for name, one := range map[string]struct {
		change func(*x509.Certificate)
		by     *foreignCA
		key    *ecdsa.PrivateKey
		answer func(leaf, middle, root string) string
		says   string // empty: accepted
	}{
		"good":          {},
		"with its root": {answer: func(leaf, middle, root string) string { return leaf + middle + root }},
		"with somebody else's": {answer: func(leaf, middle, _ string) string {
			return leaf + string(EncodeCertificates(stranger.middle)) + middle
		}},
		"for another key":         {key: foreignKey(t), says: "another key"},
		"of another identity":     {change: func(c *x509.Certificate) { c.URIs = []*url.URL{other.URL()} }, says: "but the caller is"},
		"of two identities":       {change: func(c *x509.Certificate) { c.URIs = append(c.URIs, other.URL()) }, says: "2 URI names"},
		"of none":                 {change: func(c *x509.Certificate) { c.URIs = nil }, says: "0 URI names"},
		"with a DNS name":         {change: func(c *x509.Certificate) { c.DNSNames = []string{"istiod.istio-system.svc"} }, says: "only a SPIFFE URI"},
		"a CA's":                  {change: func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }, says: "a CA's"},
		"for clients alone":       {change: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, says: "extended key usage"},
		"to sign certificates":    {change: func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }, says: "digitalSignature"},
		"that has ended":          {change: func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }, says: "it ends at"},
		"that begins tomorrow":    {change: func(c *x509.Certificate) { c.NotBefore = now.Add(24 * time.Hour) }, says: "it begins at"},
		"that begins in a moment": {change: func(c *x509.Certificate) { c.NotBefore = now.Add(10 * time.Second) }},
		"that lives too long":     {change: func(c *x509.Certificate) { c.NotAfter = now.Add(100 * time.Hour) }, says: "live for 48h0m0s at most"},
		"of another CA":           {by: &stranger, says: "does not lead to a root"},
		"without what is between": {answer: func(leaf, _, _ string) string { return leaf }, says: "does not lead to a root"},
		"nothing":                 {answer: func(string, string, string) string { return "" }, says: "0 certificates"},
		"no certificate":          {answer: func(string, string, string) string { return "no" }, says: "not PEM"},
		"too many":                {answer: func(leaf, middle, _ string) string { return leaf + strings.Repeat(middle, maxChain) }, says: "9 certificates"},
		"too much":                {answer: func(leaf, _, _ string) string { return leaf + strings.Repeat("#", maxForeign) }, says: "bytes"},
	} {
		c := &x509.Certificate{SerialNumber: big.NewInt(0x2a), URIs: []*url.URL{foreignID.URL()}, KeyUsage: x509.KeyUsageDigitalSignature, NotBefore: now.Add(-time.Minute),
			NotAfter: now.Add(24 * time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
		if one.change != nil {
			one.change(c)
		}
		by, of := ca, key
		if one.by != nil {
			by = *one.by
		}
		if one.key != nil {
			of = one.key
		}
		text := func(c *x509.Certificate) string { return string(EncodeCertificates(c)) }
		leaf := signedBy(t, c, by.middle, &of.PublicKey, by.key)
		answer := text(leaf) + text(by.middle)
		if one.answer != nil {
			answer = one.answer(text(leaf), text(by.middle), text(by.root))
		}
		got, err := Foreign{Identity: foreignID, Key: key.Public(), Roots: []*x509.Certificate{ca.root}, MaxTTL: 48 * time.Hour}.Check([]byte(answer), now)
		switch {
		case one.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case one.says == "" && (len(got.Chain) != 2 || !got.Chain[0].Equal(leaf) || !got.Chain[1].Equal(ca.middle) || got.Serial != "2a"):
			t.Errorf("%s: a chain of %d, serial number %s", name, len(got.Chain), got.Serial)
		case one.says != "" && (!errors.Is(err, ErrForeign) || errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), one.says)):
			t.Errorf("%s: %v, want %q", name, err, one.says)
		}
	}
}
