package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func reframe(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func derOf(text []byte) []byte {
	b, _ := pem.Decode(text)
	return bytes.Clone(b.Bytes)
}

func TestCSRRefused(t *testing.T) {
	good := csrPEM(ecKey(), named(web.String()))
	corrupt := derOf(good)
	corrupt[len(corrupt)-5] ^= 1
	swapped := bytes.Replace(derOf(good), []byte("sa/web"), []byte("sa/wex"), 1) // the signed content changed
	alt := func(names ...asn1.RawValue) []byte {
		e := pkix.Extension{Id: oidSubjectAltName, Value: must(asn1.Marshal(names))}
		return csrPEM(ecKey(), x509.CertificateRequest{ExtraExtensions: []pkix.Extension{e}})
	}
	huge := pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: make([]byte, 1<<20)}
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	p521 := must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	p224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	tests := map[string]struct {
		csr  []byte
		want error
		says string
	}{
		"empty":                 {nil, ErrMalformed, "empty"},
		"white space":           {[]byte(" \n"), ErrMalformed, "empty"},
		"DER":                   {derOf(good), ErrMalformed, "does not begin"},
		"text before":           {append([]byte("hello\n"), good...), ErrMalformed, "does not begin"},
		"bytes after":           {append(bytes.Clone(good), 'x'), ErrMalformed, "after the PEM block"},
		"two":                   {append(bytes.Clone(good), good...), ErrMalformed, "after the PEM block"},
		"broken one before":     {append([]byte("-----BEGIN X-----\n!\n-----END X-----\n"), good...), ErrMalformed, "more than one"},
		"certificate":           {reframe("CERTIFICATE", derOf(good)), ErrMalformed, `"CERTIFICATE"`},
		"headers":               {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: derOf(good), Headers: map[string]string{"A": "b"}}), ErrMalformed, "headers"},
		"cut":                   {good[:len(good)/2], ErrMalformed, "no complete PEM"},
		"cut inside":            {reframe("CERTIFICATE REQUEST", derOf(good)[:60]), ErrMalformed, "asn1"},
		"trailing DER":          {reframe("CERTIFICATE REQUEST", append(derOf(good), 0)), ErrMalformed, "trailing"},
		"signature changed":     {reframe("CERTIFICATE REQUEST", corrupt), ErrInvalid, ""},
		"content changed":       {reframe("CERTIFICATE REQUEST", swapped), ErrSignature, ""},
		"SHA-1":                 {csrPEM(rsaKey(), x509.CertificateRequest{SignatureAlgorithm: x509.SHA1WithRSA}), ErrSignature, "SHA1"},
		"RSA-1024":              {csrPEM(rsaWeak(), named()), ErrWeakKey, "1024 bits"},
		"RSA huge":              {withKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 16390), E: 65537}), ErrWeakKey, "16391 bits"},
		"RSA exponent":          {withKey(&rsa.PublicKey{N: rsaKey().N, E: 3}), ErrWeakKey, "exponent 3"},
		"Ed25519":               {csrPEM(edKey, named()), ErrWeakKey, "ed25519"},
		"P-521":                 {csrPEM(p521, named()), ErrWeakKey, "P-521"},
		"P-224":                 {csrPEM(p224, named()), ErrWeakKey, "P-224"},
		"megabyte of extension": {csrPEM(ecKey(), x509.CertificateRequest{ExtraExtensions: []pkix.Extension{huge}}), ErrTooLarge, "at most 16384"},
		"other account":         {csrPEM(ecKey(), named("spiffe://cluster.local/ns/shop/sa/admin")), ErrForeignName, "sa/admin"},
		"other trust domain":    {csrPEM(ecKey(), named("spiffe://evil/ns/shop/sa/web")), ErrForeignName, "evil"},
		"one more URI":          {csrPEM(ecKey(), named(web.String(), "https://x")), ErrForeignName, "https://x"},
		"DNS name":              {csrPEM(ecKey(), x509.CertificateRequest{DNSNames: []string{"istiod.istio-system.svc"}}), ErrForeignName, "kind 2"},
		"address":               {csrPEM(ecKey(), x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(1, 2, 3, 4)}}), ErrForeignName, "kind 7"},
		"mail":                  {csrPEM(ecKey(), x509.CertificateRequest{EmailAddresses: []string{"a@b"}}), ErrForeignName, "kind 1"},
		// x509 does not show these two at all.
		"other name":     {alt(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: must(asn1.Marshal(asn1.ObjectIdentifier{1, 2}))}), ErrForeignName, "kind 0"},
		"directory name": {alt(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 4, IsCompound: true, Bytes: must(asn1.Marshal(pkix.Name{CommonName: "x"}.ToRDNSequence()))}), ErrForeignName, "kind 4"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantRefused(t, tt.csr, tt.want, tt.says) })
	}
}

// wantRefused checks that a CSR for web is refused, with this error and text.
func wantRefused(t *testing.T, csr []byte, want error, says string) {
	t.Helper()
	_, err := ParseCSR(csr, web)
	if !errors.Is(err, want) || !errors.Is(err, ErrInvalid) {
		t.Fatalf("error %v, want %v", err, want)
	}
	if !strings.Contains(err.Error(), says) || len(err.Error()) > 500 {
		t.Errorf("error %q does not say %q", err, says)
	}
}

// withKey returns a CSR whose key was exchanged. Its signature does not match, but the key must be refused before the
// signature is verified.
func withKey(public crypto.PublicKey) []byte {
	var csr struct {
		Content struct {
			Version    int
			Subject    asn1.RawValue
			Key        asn1.RawValue
			Attributes asn1.RawValue `asn1:"tag:0"`
		}
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}
	must(asn1.Unmarshal(derOf(csrPEM(rsaKey(), x509.CertificateRequest{})), &csr))
	csr.Content.Key = asn1.RawValue{FullBytes: must(x509.MarshalPKIXPublicKey(public))}
	return reframe("CERTIFICATE REQUEST", must(asn1.Marshal(csr)))
}

func TestCSRNamesAccepted(t *testing.T) {
	old := spiffeid.RequireTrustDomainFromString("old.example")
	for name, csr := range map[string][]byte{
		"none":        csrPEM(ecKey(), named()),
		"own":         csrPEM(ecKey(), named(web.String())),
		"alias":       csrPEM(ecKey(), named("spiffe://old.example/ns/shop/sa/web")),
		"old framing": reframe("NEW CERTIFICATE REQUEST", derOf(csrPEM(ecKey(), named()))),
		"white space": append([]byte("\n\n"), append(csrPEM(ecKey(), named()), " \r\n\n"...)...),
	} {
		if _, err := ParseCSR(csr, web, old); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseCSR(csrPEM(ecKey(), named("spiffe://old.example/ns/shop/sa/root")), web, old); !errors.Is(err, ErrForeignName) {
		t.Errorf("alias with another path: %v", err)
	}
}

// A CSR that requests a CA certificate does not yield one.
// Promise: security-workloads.md#identity-and-private-keys
func TestExtensionsDoNotComeThrough(t *testing.T) {
	ca := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: must(asn1.Marshal(struct{ CA bool }{true}))}
	csr := csrPEM(ecKey(), x509.CertificateRequest{ExtraExtensions: []pkix.Extension{ca}})
	got, err := Issue(root(t), Request{CSR: csr, Identity: web}, Policy{}, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Leaf.IsCA {
		t.Error("the CSR made itself a CA")
	}
}

func FuzzParseCSR(f *testing.F) {
	f.Add(csrPEM(ecKey(), named(web.String())))
	f.Add(csrPEM(rsaKey(), named()))
	f.Add(csrPEM(ecKey(), x509.CertificateRequest{DNSNames: []string{"a.b"}, IPAddresses: []net.IP{net.IPv6loopback}}))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	a := root(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, text := range [][]byte{b, reframe("CERTIFICATE REQUEST", b)} { // the second way gets past the framing
			got, err := Issue(a, Request{CSR: text, Identity: web}, Policy{}, now, nil)
			if err != nil {
				if !errors.Is(err, ErrInvalid) {
					t.Fatalf("not the caller's fault? %v", err)
				}
				continue
			}
			if got.Leaf.URIs[0].String() != web.String() || len(got.Leaf.URIs) != 1 || got.Leaf.IsCA {
				t.Fatalf("issued %v", got.Leaf.URIs)
			}
		}
	})
}
