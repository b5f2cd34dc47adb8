package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// link is one CA certificate of a test's chain and its key.
type link struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// under makes a CA below parent (nil: a root); change may spoil it.
func under(parent *link, name string, key crypto.Signer, change func(*x509.Certificate)) *link {
	id := must(keyID(key.Public()))
	t := &x509.Certificate{
		SerialNumber: must(serial(rand.Reader)), Subject: pkix.Name{CommonName: name}, SubjectKeyId: id,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if change != nil {
		change(t)
	}
	issuer, signer := t, key
	if parent != nil {
		issuer, signer = parent.cert, parent.key
	}
	return &link{must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, t, issuer, key.Public(), signer)))), key}
}

func newKey() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func keyPEM(key crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
}

func files(issuer *link, root *link, chain ...*link) Files {
	f := Files{Cert: EncodeCertificates(issuer.cert), Key: keyPEM(issuer.key), Root: EncodeCertificates(root.cert)}
	for _, l := range chain {
		f.Chain = append(f.Chain, EncodeCertificates(l.cert)...)
	}
	return f
}

func TestFromPEM(t *testing.T) {
	top := under(nil, "top", newKey(), nil)
	middle := under(top, "middle", newKey(), nil)
	low := under(middle, "low", rsaKey(), func(c *x509.Certificate) { c.MaxPathLenZero = true })
	sec1 := files(middle, top)
	sec1.Key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(middle.key.(*ecdsa.PrivateKey)))})
	sec1.Key = append([]byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"), sec1.Key...)
	pkcs1 := files(low, top, middle)
	pkcs1.Key = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(low.key.(*rsa.PrivateKey))})
	tests := map[string]struct {
		files Files
		want  []*link // chain of a leaf, without it
	}{
		"root alone":                    {files(top, top), nil},
		"intermediate":                  {files(middle, top), []*link{middle}},
		"two, chain as istio writes it": {files(low, top, low, middle, top), []*link{low, middle}},
		"two, chain without ends":       {files(low, top, middle), []*link{low, middle}},
		"SEC 1 with parameters":         {sec1, []*link{middle}},
		"PKCS #1":                       {pkcs1, []*link{low, middle}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := FromPEM(tt.files, 3, td, now)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Issue(a, Request{CSR: csrPEM(ecKey(), named()), Identity: web}, Policy{}, now, nil)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(a.Chain, top.cert.Equal) {
				t.Error("the root is in the authority's chain")
			}
			want := []*x509.Certificate{got.Leaf}
			for _, l := range tt.want {
				want = append(want, l.cert)
			}
			if !slices.EqualFunc(got.Chain, want, (*x509.Certificate).Equal) || got.Epoch != 3 {
				t.Errorf("chain of %d, want %d", len(got.Chain), len(want))
			}
			checkEncoding(t, got.Encode(a.Roots), want, top.cert)
		})
	}
}

func checkEncoding(t *testing.T, elements []string, chain []*x509.Certificate, root *x509.Certificate) {
	t.Helper()
	if len(elements) != len(chain)+1 {
		t.Fatalf("%d elements, want one per certificate and the roots", len(elements))
	}
	for i, c := range append(slices.Clone(chain), root) {
		block, rest := pem.Decode([]byte(elements[i]))
		if block == nil || len(rest) != 0 || !bytes.Equal(block.Bytes, c.Raw) || !strings.HasSuffix(elements[i], "-----\n") {
			t.Errorf("element %d: %q", i, elements[i])
		}
	}
}

func TestEncodeKeepsTheBundleInOneElement(t *testing.T) {
	a, b := root(t), root(t)
	got := (&Issued{Chain: []*x509.Certificate{a.Certificate}}).Encode([]*x509.Certificate{a.Certificate, b.Certificate})
	if len(got) != 2 || strings.Count(got[1], "-----BEGIN") != 2 || got[1] != got[0]+string(EncodeCertificates(b.Certificate)) {
		t.Errorf("%q", got)
	}
}

// TestSameName: an intermediate that has its root's name is no root and must be sent to peers.
func TestSameName(t *testing.T) {
	top := under(nil, "CA", newKey(), nil)
	low := under(top, "CA", newKey(), nil)
	a, err := FromPEM(files(low, top, low, top), 1, td, now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Issue(a, Request{CSR: csrPEM(ecKey(), named()), Identity: web}, Policy{}, now, nil)
	if err != nil || len(got.Chain) != 2 || !got.Chain[1].Equal(low.cert) {
		t.Errorf("chain of %d: %v", len(got.Chain), err)
	}
}

func TestFromPEMRefused(t *testing.T) {
	top := under(nil, "top", newKey(), nil)
	spoiled := func(f func(*x509.Certificate)) *link { return under(top, "low", newKey(), f) }
	short := under(nil, "short", newKey(), func(c *x509.Certificate) { c.MaxPathLenZero = true })
	ended := under(nil, "ended", newKey(), func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) })
	middle := spoiled(func(c *x509.Certificate) { c.MaxPathLenZero = true })
	fine := spoiled(nil)
	other := files(fine, top)
	other.Key = keyPEM(newKey())
	with := func(change func(*Files)) Files { f := files(fine, top); change(&f); return f }
	encrypted := []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
	p521 := must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	tests := map[string]struct {
		files Files
		says  string
	}{
		"other key":            {other, "ca-key.pem: is not the key of ca-cert.pem"},
		"no CA":                {files(spoiled(func(c *x509.Certificate) { c.IsCA = false }), top), "ca-cert.pem: is not a CA"},
		"no keyCertSign":       {files(spoiled(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), top), "keyCertSign"},
		"expired":              {files(spoiled(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }), top), "ca-cert.pem: expired at 2026-03-01T11:59:00Z"},
		"too soon":             {files(spoiled(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) }), top), "ca-cert.pem: not valid before"},
		"path length":          {files(under(middle, "lowest", newKey(), nil), top, middle), "path length 0 is too short for the 1 issuers below"},
		"path length of root":  {files(under(short, "a", newKey(), nil), short), "root-cert.pem"},
		"expired root":         {files(under(ended, "a", newKey(), nil), ended), "root-cert.pem: "},
		"other root":           {files(fine, short), "root-cert.pem: a certificate of this CA for cluster.local is not accepted"},
		"name constraint":      {files(spoiled(func(c *x509.Certificate) { c.PermittedURIDomains = []string{"other.example"} }), top), "root-cert.pem"},
		"extended usage":       {files(spoiled(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), top), "root-cert.pem"},
		"chain of other order": {files(under(spoiled(nil), "x", newKey(), nil), top, fine), "cert-chain.pem: certificate \"CN=low\" did not sign"},
		"P-521":                {files(under(top, "low", p521, nil), top), "P-521"},
		"weak RSA":             {files(under(top, "low", rsaWeak(), nil), top), "1024 bits"},
		"no certificate":       {with(func(f *Files) { f.Cert = nil }), "ca-cert.pem: no certificate"},
		"no root":              {with(func(f *Files) { f.Root = nil }), "root-cert.pem: no certificate"},
		"no key":               {with(func(f *Files) { f.Key = nil }), "ca-key.pem: no private key"},
		"encrypted key":        {with(func(f *Files) { f.Key = encrypted }), "is encrypted"},
		"broken key":           {with(func(f *Files) { f.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}) }), "cannot be read as PRIVATE KEY"},
		"certificate as key":   {with(func(f *Files) { f.Key = f.Cert }), `"CERTIFICATE", not a private key`},
		"key among certs":      {with(func(f *Files) { f.Chain = f.Key }), "cert-chain.pem: PEM block 1 is \"PRIVATE KEY\""},
		"not PEM":              {with(func(f *Files) { f.Root = []byte("hello") }), "root-cert.pem: is not PEM"},
		"cut":                  {with(func(f *Files) { f.Chain = f.Cert[:100] }), "cert-chain.pem: 1 PEM blocks begin, but only 0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := FromPEM(tt.files, 1, td, now)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v does not say %q", err, tt.says)
			}
		})
	}
}

func TestEnd(t *testing.T) {
	end := func(d time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotAfter = now.Add(d).Truncate(time.Second) }
	}
	top := under(nil, "top", newKey(), end(2*time.Hour))
	middle := under(top, "middle", newKey(), end(time.Hour))
	low := under(middle, "low", newKey(), end(3*time.Hour))
	a, err := FromPEM(files(low, top, middle), 1, td, now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Issue(a, Request{CSR: csrPEM(ecKey(), named()), Identity: web}, exact, now, nil)
	if err != nil || !got.Leaf.NotAfter.Equal(middle.cert.NotAfter) {
		t.Errorf("leaf ends %v, the chain %v: %v", got.Leaf.NotAfter, middle.cert.NotAfter, err)
	}
	b, err := FromPEM(files(under(top, "low", newKey(), end(3*time.Hour)), top), 1, td, now)
	if err != nil || !b.End().Equal(top.cert.NotAfter) {
		t.Errorf("end %v, the root's is %v: %v", b.End(), top.cert.NotAfter, err)
	}
}

func TestSelfSigned(t *testing.T) {
	a, b := root(t), root(t)
	if err := a.Verify(td, now); err != nil {
		t.Error(err)
	}
	if bytes.Equal(a.Certificate.RawSubject, b.Certificate.RawSubject) || bytes.Equal(a.Certificate.SubjectKeyId, b.Certificate.SubjectKeyId) {
		t.Error("two roots of one epoch share subject or key identifier")
	}
	if len(a.Roots) != 1 || a.Roots[0] != a.Certificate || !a.CanRevoke() || !selfSigned(a.Certificate) {
		t.Errorf("%v", a)
	}
	csr := csrPEM(ecKey(), named())
	byHand := &Authority{Epoch: 7, Key: a.Key, Certificate: a.Certificate} // as another author may have assembled it
	if got, err := Issue(byHand, Request{CSR: csr, Identity: web}, Policy{}, now, nil); err != nil || len(got.Chain) != 1 {
		t.Errorf("chain without roots given: %v", err)
	}
	if _, err := SelfSigned(spiffeid.TrustDomain{}, 1, time.Hour, now, nil); err == nil {
		t.Error("a root of no trust domain")
	}
	if _, err := SelfSigned(td, 1, 0, now, nil); err == nil {
		t.Error("a root without validity")
	}
}

func TestCRL(t *testing.T) {
	a := root(t)
	at := now.Add(-time.Hour).Truncate(time.Second)
	der, err := CRL(a, big.NewInt(5), []Revoked{{"ff", at, 1}, {"0a", at, 0}, {"ff", at.Add(time.Minute), 0}}, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(EncodeCRL(der))
	list, err := x509.ParseRevocationList(block.Bytes)
	if err != nil || block.Type != "X509 CRL" {
		t.Fatal(err)
	}
	if err := list.CheckSignatureFrom(a.Certificate); err != nil {
		t.Error(err)
	}
	if !list.ThisUpdate.Before(now.Add(-4*time.Minute)) || !list.NextUpdate.Equal(a.Certificate.NotAfter) || list.Number.Int64() != 5 {
		t.Errorf("list %v - %v number %v", list.ThisUpdate, list.NextUpdate, list.Number)
	}
	e := list.RevokedCertificateEntries
	if len(e) != 2 || SerialString(e[0].SerialNumber) != "a" || e[0].ReasonCode != 0 || SerialString(e[1].SerialNumber) != "ff" || !e[1].RevocationTime.Equal(at) || e[1].ReasonCode != 1 {
		t.Errorf("entries %+v", e)
	}
	if der, err := CRL(a, big.NewInt(0), nil, now, nil); err != nil {
		t.Errorf("empty list: %v", err)
	} else if list := must(x509.ParseRevocationList(der)); len(list.RevokedCertificateEntries) != 0 {
		t.Error("empty list has entries")
	}
}

func TestCRLRefused(t *testing.T) {
	a := root(t)
	mute := under(nil, "mute", newKey(), func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign })
	b := must(FromPEM(files(mute, mute), 1, td, now))
	for name, try := range map[string]func() ([]byte, error){
		"no number":  func() ([]byte, error) { return CRL(a, nil, nil, now, nil) },
		"negative":   func() ([]byte, error) { return CRL(a, big.NewInt(-1), nil, now, nil) },
		"serial":     func() ([]byte, error) { return CRL(a, big.NewInt(1), []Revoked{{Serial: "zz"}}, now, nil) },
		"serial 0":   func() ([]byte, error) { return CRL(a, big.NewInt(1), []Revoked{{Serial: "0"}}, now, nil) },
		"reason":     func() ([]byte, error) { return CRL(a, big.NewInt(1), []Revoked{{Serial: "1", Reason: 7}}, now, nil) },
		"expired":    func() ([]byte, error) { return CRL(a, big.NewInt(1), nil, a.End().Add(time.Hour), nil) },
		"no key":     func() ([]byte, error) { return CRL(&Authority{}, big.NewInt(1), nil, now, nil) },
		"no cRLSign": func() ([]byte, error) { return CRL(b, big.NewInt(1), nil, now, nil) },
	} {
		_, err := try()
		if err == nil || errors.Is(err, ErrNoCRL) != (name == "no cRLSign") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServing(t *testing.T) {
	names := ServingNames("istio-system", "canary", "istiod.example", "", "istiod.istio-system.svc", "10.0.0.9")
	want := []string{"10.0.0.9", "istio-pilot.istio-system.svc", "istiod-canary.istio-system.svc", "istiod-remote.istio-system.svc", "istiod.example", "istiod.istio-system.svc"}
	if !slices.Equal(names, want) {
		t.Fatalf("names %v", names)
	}
	if n := ServingNames("x", "default"); len(n) != 3 {
		t.Errorf("the default revision: %v", n)
	}
	a := root(t)
	self := spiffeid.RequireFromString("spiffe://cluster.local/ns/istio-system/sa/istiod")
	cert, err := Serving(a, ServingRequest{Names: names, Identity: self}, exact, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	for _, n := range want {
		handshake(t, cert, &tls.Config{RootCAs: pool, ServerName: n, Time: func() time.Time { return now }}, true)
	}
	handshake(t, cert, &tls.Config{RootCAs: pool, ServerName: "other", Time: func() time.Time { return now }}, false)
	if _, err := Serving(a, ServingRequest{}, exact, now, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no names: %v", err)
	}
	if _, err := Serving(nil, ServingRequest{Names: names}, exact, now, nil); !errors.Is(err, ErrAuthority) {
		t.Errorf("no authority: %v", err)
	}
}

func handshake(t *testing.T, cert tls.Certificate, client *tls.Config, ok bool) {
	t.Helper()
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	done := make(chan error, 1)
	go func() { done <- tls.Server(y, &tls.Config{Certificates: []tls.Certificate{cert}}).Handshake() }()
	err := tls.Client(x, client).Handshake()
	if (err == nil) != ok {
		t.Errorf("handshake with %s: %v", client.ServerName, err)
	}
	x.Close()
	<-done
}

// A certificate's validity begins early enough for a peer whose clock is 10 minutes behind, and other peers accept
// certificates of a signer whose clock is as far ahead.
func TestBackdate(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString("cluster.local")
	a, err := SelfSigned(td, 1, time.Hour, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := now.Add(-15 * time.Minute).UTC().Truncate(time.Second)
	if !a.Certificate.NotBefore.Equal(want) {
		t.Errorf("a root begins at %v, want %v", a.Certificate.NotBefore, want)
	}
	der, err := CRL(a, big.NewInt(1), nil, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := x509.ParseRevocationList(der); err != nil || !list.ThisUpdate.Equal(want) {
		t.Errorf("a list begins at %v, %v, want %v", list.ThisUpdate, err, want)
	}
	from, _, err := a.validity(time.Minute, Policy{}.withDefaults(), now, rand.Reader)
	if err != nil || !from.Equal(want) {
		t.Errorf("a leaf begins at %v, %v, want %v", from, err, want)
	}
}
