package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	now   = time.Date(2026, 3, 1, 12, 0, 0, 5e8, time.UTC)
	td    = spiffeid.RequireTrustDomainFromString("cluster.local")
	web   = spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/web")
	exact = Policy{Backdate: -1, Jitter: -1}
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var (
	ecKey   = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	rsaKey  = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	rsaWeak = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 1024)) })
)

func root(t testing.TB) *Authority {
	t.Helper()
	a, err := SelfSigned(td, 7, 365*24*time.Hour, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func csrPEM(key crypto.Signer, t x509.CertificateRequest) []byte {
	der := must(x509.CreateCertificateRequest(rand.Reader, &t, key))
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func named(names ...string) x509.CertificateRequest {
	var t x509.CertificateRequest
	for _, n := range names {
		t.URIs = append(t.URIs, must(url.Parse(n)))
	}
	return t
}

func TestIssue(t *testing.T) {
	a := root(t)
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	for name, key := range map[string]crypto.Signer{"P-256": ecKey(), "P-384": p384, "RSA-2048": rsaKey()} {
		t.Run(name, func(t *testing.T) {
			// Stock agents send an empty organization and their own URI.
			request := named(web.String())
			request.Subject = pkix.Name{Organization: []string{""}, CommonName: "system:masters"}
			got, err := Issue(a, Request{CSR: csrPEM(key, request), Identity: web}, Policy{}, now, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkLeaf(t, a, got, key.Public())
		})
	}
}

func checkLeaf(t *testing.T, a *Authority, got *Issued, public crypto.PublicKey) {
	t.Helper()
	leaf := got.Leaf
	roots := x509.NewCertPool()
	roots.AddCert(a.Certificate)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("usage %v: %v", usage, err)
		}
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != web.String() || len(leaf.DNSNames)+len(leaf.EmailAddresses)+len(leaf.IPAddresses) != 0 {
		t.Errorf("names: %v %v", leaf.URIs, leaf.DNSNames)
	}
	if s := leaf.Subject.String(); s != "" {
		t.Errorf("subject %q: the CSR's came through", s)
	}
	critical := false
	for _, e := range leaf.Extensions {
		critical = critical || e.Id.Equal(oidSubjectAltName) && e.Critical
	}
	if !critical {
		t.Error("alternative name is not critical though the subject is empty")
	}
	usage := x509.KeyUsageDigitalSignature
	if _, ok := public.(*rsa.PublicKey); ok {
		usage |= x509.KeyUsageKeyEncipherment
	}
	if leaf.KeyUsage != usage || leaf.IsCA || !leaf.BasicConstraintsValid {
		t.Errorf("usage %b, want %b; CA %v", leaf.KeyUsage, usage, leaf.IsCA)
	}
	if !bytes.Equal(leaf.AuthorityKeyId, a.Certificate.SubjectKeyId) || len(leaf.SubjectKeyId) != 20 {
		t.Errorf("key identifiers %x %x", leaf.AuthorityKeyId, leaf.SubjectKeyId)
	}
	if !public.(interface{ Equal(crypto.PublicKey) bool }).Equal(leaf.PublicKey) {
		t.Error("another key than the CSR's")
	}
	if got.Epoch != 7 || got.Serial != leaf.SerialNumber.Text(16) || leaf.SerialNumber.BitLen() > 128 {
		t.Errorf("epoch %d serial %s", got.Epoch, got.Serial)
	}
	if len(got.Chain) != 1 || got.Chain[0] != leaf {
		t.Errorf("chain of %d: the root belongs to the bundle", len(got.Chain))
	}
}

func TestValidity(t *testing.T) {
	a := root(t)
	second := now.Truncate(time.Second)
	tests := map[string]struct {
		ttl      time.Duration
		policy   Policy
		from, to time.Time
	}{
		"default":               {0, exact, second, second.Add(24 * time.Hour)},
		"asked":                 {time.Hour, exact, second, second.Add(time.Hour)},
		"above the maximum":     {time.Hour, Policy{MaxTTL: time.Minute, Backdate: -1, Jitter: -1}, second, second.Add(time.Minute)},
		"backdated":             {time.Hour, Policy{Jitter: -1, Backdate: time.Minute}, second.Add(-time.Minute), second.Add(time.Hour)},
		"not before the issuer": {time.Hour, Policy{Jitter: -1, Backdate: 48 * time.Hour}, a.Certificate.NotBefore, second.Add(time.Hour)},
		"not past the issuer":   {400 * 24 * time.Hour, Policy{MaxTTL: 500 * 24 * time.Hour, Backdate: -1}, second, a.Certificate.NotAfter},
		"a second":              {time.Second, exact, second, second.Add(time.Second)},
	}
	csr := csrPEM(ecKey(), named())
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			random := io.Reader(nil)
			if tt.policy.Jitter == 0 { // no jitter, though the policy has the default one
				random = io.MultiReader(bytes.NewReader(make([]byte, 8)), rand.Reader)
			}
			got, err := Issue(a, Request{CSR: csr, Identity: web, TTL: tt.ttl}, tt.policy, now, random)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Leaf.NotBefore.Equal(tt.from) || !got.Leaf.NotAfter.Equal(tt.to) {
				t.Errorf("valid %v - %v, want %v - %v", got.Leaf.NotBefore, got.Leaf.NotAfter, tt.from, tt.to)
			}
		})
	}
	// A jitter that would round a short life down to nothing.
	early, most := now.Truncate(time.Second), bytes.NewReader(bytes.Repeat([]byte{255}, 8))
	if _, to, err := a.validity(time.Second, Policy{Jitter: 0.9}.withDefaults(), early, most); err != nil || !to.After(early) {
		t.Errorf("a second with most jitter ends %v: %v", to, err)
	}
	if _, err := Issue(a, Request{CSR: csr, Identity: web, TTL: -time.Hour}, exact, now, nil); !errors.Is(err, ErrTTL) {
		t.Errorf("negative TTL: %v", err)
	}
}

func TestJitterSpreads(t *testing.T) {
	a := root(t)
	early, late := now.Add(24*time.Hour), now
	for range 200 {
		_, to, err := a.validity(0, Policy{}.withDefaults(), now, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		early, late = minTime(early, to), maxTime(late, to)
	}
	if low := now.Add(24*time.Hour - 144*time.Minute - time.Second); early.Before(low) || late.After(now.Add(24*time.Hour)) {
		t.Errorf("expiries from %v to %v leave the last 10 %% of 24 h", early, late)
	}
	if late.Sub(early) < time.Hour {
		t.Errorf("200 expiries lie within %v", late.Sub(early))
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func TestAuthorityNotUsable(t *testing.T) {
	a := root(t)
	r := Request{CSR: csrPEM(ecKey(), named()), Identity: web}
	for name, try := range map[string]func() (*Issued, error){
		"none":     func() (*Issued, error) { return Issue(nil, r, Policy{}, now, nil) },
		"no key":   func() (*Issued, error) { return Issue(&Authority{}, r, Policy{}, now, nil) },
		"expired":  func() (*Issued, error) { return Issue(a, r, Policy{}, a.End(), nil) },
		"too soon": func() (*Issued, error) { return Issue(a, r, Policy{}, now.Add(-time.Hour), nil) },
		"policy":   func() (*Issued, error) { return Issue(a, r, Policy{Jitter: 1}, now, nil) },
	} {
		if _, err := try(); !errors.Is(err, ErrAuthority) || errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Issue(a, r, Policy{}, now, strings.NewReader("short")); err == nil || errors.Is(err, ErrInvalid) {
		t.Errorf("no randomness: %v", err)
	}
	for _, id := range []spiffeid.ID{{}, td.ID()} {
		if _, err := Issue(a, Request{CSR: r.CSR, Identity: id}, Policy{}, now, nil); !errors.Is(err, ErrIdentity) {
			t.Errorf("identity %q: %v", id, err)
		}
	}
}

func TestSerialsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		n, err := serial(rand.Reader)
		if err != nil || seen[n.String()] {
			t.Fatal(n, err)
		}
		seen[n.String()] = true
	}
	if _, err := serial(bytes.NewReader(make([]byte, 4096))); err == nil {
		t.Error("a serial number of zero")
	}
}

func TestAuthorityPrintsSealed(t *testing.T) {
	a := root(t)
	scalar := must(a.Key.(*ecdsa.PrivateKey).Bytes())
	d := new(big.Int).SetBytes(scalar).String()
	var b strings.Builder
	fmt.Fprintf(&b, "%v %+v %#v %s %v %x %q", a, a, a, a, *a, a, struct{ A *Authority }{a})
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", "a", a, "b", *a)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "a", a)
	b.Write(must(json.Marshal(map[string]any{"a": a, "b": *a})))
	if s := b.String(); strings.Contains(s, d) || strings.Contains(s, fmt.Sprintf("%x", scalar)) || strings.Contains(s, "PrivateKey") {
		t.Errorf("key material printed: %s", s)
	} else if n := strings.Count(s, "[sealed]"); n != 12 {
		t.Errorf("%d of 12 say [sealed]: %s", n, s)
	}
}

func BenchmarkIssue(b *testing.B) {
	a := root(b)
	for name, key := range map[string]crypto.Signer{"P-256": ecKey(), "RSA-2048": rsaKey()} {
		r := Request{CSR: csrPEM(key, named(web.String())), Identity: web}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Issue(a, r, Policy{}, now, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
