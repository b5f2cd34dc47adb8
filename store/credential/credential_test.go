package credential

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"navarch.io/navarch/store/problem"
)

var soon = time.Now().Add(time.Hour).UTC().Truncate(time.Second)

// issuer signs everything in these tests.
var issuer = func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}()

func text(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// pairOf returns a certificate of a key, and the key, in PEM.
func pairOf(t testing.TB, key crypto.Signer, extensions ...pkix.Extension) (cert, private string) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "a"}, DNSNames: []string{"a.test"},
		NotBefore: soon.Add(-2 * time.Hour), NotAfter: soon, ExtraExtensions: extensions, IsCA: true, BasicConstraintsValid: true,
		SubjectKeyId: []byte{1}, KeyUsage: x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), issuer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", raw)
}

func curve(t testing.TB, c elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// mersenne returns the RSA key of two Mersenne primes, 2^a-1 and 2^b-1: large ones without a search.
func mersenne(a, b uint) crypto.Signer {
	one := big.NewInt(1)
	p, q := new(big.Int).Sub(new(big.Int).Lsh(one, a), one), new(big.Int).Sub(new(big.Int).Lsh(one, b), one)
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537}, Primes: []*big.Int{p, q}}
	key.D = new(big.Int).ModInverse(big.NewInt(65537), phi)
	key.Precompute()
	return key
}

func list(t testing.TB) string {
	t.Helper()
	ca := &x509.Certificate{SubjectKeyId: []byte{1}, KeyUsage: x509.KeyUsageCRLSign}
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), NextUpdate: soon}, ca, issuer)
	if err != nil {
		t.Fatal(err)
	}
	return text("X509 CRL", der)
}

func staple(t testing.TB, serial int64) string {
	t.Helper()
	cert, _ := pairOf(t, issuer)
	block, _ := pem.Decode([]byte(cert))
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := ocsp.CreateResponse(ca, ca, ocsp.Response{SerialNumber: big.NewInt(serial),
		ThisUpdate: soon.Add(-time.Hour), NextUpdate: soon}, issuer)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

var mustStapled = pkix.Extension{Id: []int{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: []byte{0x30, 3, 2, 1, 5}}

// Content that Envoy refuses, or that is a burden, is an error that names the value; the rest is used.
// Promise: security-gateways.md#keys-secrets-and-configmaps
func TestParse(t *testing.T) {
	cert, key := pairOf(t, curve(t, elliptic.P256()))
	other, otherKey := pairOf(t, curve(t, elliptic.P384()))
	stapled, stapledKey := pairOf(t, curve(t, elliptic.P256()), mustStapled)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(key crypto.Signer) map[string]string {
		cert, private := pairOf(t, key)
		return map[string]string{"tls.crt": cert, "tls.key": private}
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	with := func(more ...string) map[string]string {
		data := map[string]string{"tls.crt": cert, "tls.key": key}
		for i := 0; i < len(more); i += 2 {
			data[more[i]] = more[i+1]
		}
		return data
	}
	for name, c := range map[string]struct {
		data  map[string]string
		fault string // empty: none
	}{
		"P-256":               {with(), ""},
		"P-521":               {of(curve(t, elliptic.P521())), ""},
		"Ed25519":             {of(ed), ""},
		"RSA 7470":            {of(mersenne(3217, 4253)), ""},
		"P-224":               {of(curve(t, elliptic.P224())), "error tls.crt: has an ECDSA key of curve P-224: want P-256, P-384 or P-521"},
		"RSA 1024":            {of(short), "error tls.crt: has an RSA key of 1024 bits: want 2048 to 8192"},
		"RSA 8676":            {of(mersenne(4253, 4423)), "error tls.crt: has an RSA key of 8676 bits: want 2048 to 8192"},
		"RSA 15636":           {of(mersenne(4423, 11213)), "error tls.crt: has an RSA key of 15636 bits: want 2048 to 8192"},
		"a chain":             {with("tls.crt", cert+other), ""},
		"a long chain":        {with("tls.crt", cert+strings.Repeat(other, MaxCerts)), fmt.Sprintf("error tls.crt: has %d certificates", MaxCerts+1)},
		"a megabyte of chain": {with("tls.crt", cert+strings.Repeat(other, 1<<20/len(other))), "error : has"},
		"half of it":          {with("tls.crt", cert+strings.Repeat(other, 1<<19/len(other))), "error tls.crt: has"},
		"another's key":       {with("tls.key", otherKey), "error tls.key: the private key does not belong to the certificate in data.tls.crt"},
		"a broken key":        {with("tls.key", strings.Replace(key, "M", "A", 1)), "error tls.key: is not a private key that can be read"},
		"a large key":         {with("tls.key", text("PRIVATE KEY", make([]byte, MaxKey))), "error tls.key: the private key has"},
		"much beside a key":   {with("tls.key", strings.Repeat(" ", MaxKey+MaxChain)+key), "error tls.key: has"},
		"a staple":            {with("tls.ocsp-staple", staple(t, 7)), ""},
		"a wrong staple":      {with("tls.ocsp-staple", staple(t, 8)), "warning tls.ocsp-staple: is the OCSP response for another certificate"},
		"must be stapled":     {map[string]string{"tls.crt": stapled, "tls.key": stapledKey, "tls.ocsp-staple": staple(t, 7)}, ""},
		"is not stapled":      {map[string]string{"cert": stapled, "key": stapledKey}, "error cert: the certificate must be sent with an OCSP response"},
		"a broken list":       {with("ca.crl", cert), "error ca.crl: has no X509 CRL in PEM"},
		"authorities":         {map[string]string{"ca.crt": cert + other, "ca.crl": list(t)}, ""},
		"no authorities":      {map[string]string{"cacert": key}, "error cacert: has no CERTIFICATE in PEM"},
	} {
		data := map[string][]byte{}
		for k, v := range c.data {
			data[k] = []byte(v)
		}
		content, faults := Parse(data)
		got := ""
		for _, f := range faults {
			got += fmt.Sprintf("%s %s: %s", f.Severity, f.Key, f.Message)
		}
		if (got == "") != (c.fault == "") || !strings.HasPrefix(got, c.fault) {
			t.Errorf("%s: %q, want %q", name, got, c.fault)
		}
		if broken := strings.HasPrefix(c.fault, "error"); broken != (len(content.Chain)+len(content.Trust) == 0) {
			t.Errorf("%s: chain of %d bytes, %d of authorities", name, len(content.Chain), len(content.Trust))
		}
		if len(content.Chain) > 0 && (!content.Until.Equal(soon) || !Until(content.Chain).Equal(soon) || data[content.At] == nil) {
			t.Errorf("%s: until %v, %v at %s", name, content.Until, Until(content.Chain), content.At)
		}
	}
}

// Bytes that anybody may have written: what Parse accepts is a pair within the bounds, is the same if it is parsed
// again, and no private key is in a public part or in a message.
// Promise: security-gateways.md#keys-secrets-and-configmaps
func FuzzParse(f *testing.F) {
	cert, key := pairOf(f, curve(f, elliptic.P256()))
	stapled, _ := pairOf(f, curve(f, elliptic.P256()), mustStapled)
	f.Add(cert, key, cert, list(f), staple(f, 7))
	f.Add(key, cert, "", "x", "")
	f.Add(cert+key, key, key+cert, list(f)+key, staple(f, 8))
	f.Add(stapled, key, "", "", "")
	f.Fuzz(func(t *testing.T, chain, private, trust, crl, response string) {
		content, faults := Parse(map[string][]byte{"tls.crt": []byte(chain), "tls.key": []byte(private), "ca.crt": []byte(trust),
			"ca.crl": []byte(crl), "tls.ocsp-staple": []byte(response)})
		said, broken := "", false
		for _, fault := range faults {
			said += fault.Message
			broken = broken || fault.Severity == problem.Error
		}
		secret := []byte(strings.Split(key, "\n")[1])
		public := bytes.Join([][]byte{content.Chain, content.Trust, content.Crl, content.Ocsp, []byte(said)}, nil)
		if bytes.Contains(public, secret) || bytes.Contains(public, []byte("PRIVATE KEY-----")) {
			t.Error("a private key is shown")
		}
		switch {
		case broken && len(content.Chain)+len(content.Key)+len(content.Trust) > 0:
			t.Errorf("broken content is returned: %v", faults)
		case len(content.Chain) == 0:
		default:
			pair, err := tls.X509KeyPair(content.Chain, content.Key)
			if err != nil || len(pair.Certificate) > MaxCerts || wrongKey(pair.Leaf) != "" || len(content.Key) > MaxKey {
				t.Errorf("%d certificates, %v", len(pair.Certificate), err)
			}
			again, more := Parse(map[string][]byte{"cert": content.Chain, "key": content.Key, "cacert": content.Trust, "crl": content.Crl})
			if len(content.Ocsp) == 0 && (len(more) > 0 ||
				!bytes.Equal(again.Chain, content.Chain) || !bytes.Equal(again.Key, content.Key)) {
				t.Errorf("parsed again: %v", more)
			}
		}
	})
}
