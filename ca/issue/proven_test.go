package issue

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A leaf contains the time at which a token was presented, as the CA knows it, whatever the CSR contains; a leaf
// without it counts from its beginning.
// Promise: security-workloads.md#renewals-and-revocation
func TestProven(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	td := spiffeid.RequireTrustDomainFromString("cluster.local")
	a, err := SelfSigned(td, 1, 24*time.Hour, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	lie, err := proven(now.Add(1000 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{ExtraExtensions: lie}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	for _, at := range []time.Time{{}, now.Add(-40 * time.Hour)} {
		out, err := Issue(a, Request{CSR: csr, Identity: spiffeid.RequireFromPath(td, "/ns/a/sa/b"), Proven: at}, Policy{}, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := at
		if at.IsZero() {
			want = out.Leaf.NotBefore
		}
		if got := Proven(out.Leaf); !got.Equal(want) {
			t.Errorf("proven %v, want %v", got, want)
		}
		if len(out.Leaf.UnhandledCriticalExtensions) > 0 {
			t.Error("a critical extension: peers would refuse the certificate")
		}
	}
}

// The time of proof in a leaf counts from its token, also if the CA is younger than the leaf's backdating. A leaf
// without that time counts from its issue.
func TestFollows(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	extension, err := proven(began.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		leaf x509.Certificate
		want time.Time
	}{
		"it says":             {x509.Certificate{NotBefore: began, Extensions: extension}, began.Add(time.Minute)},
		"of an older version": {x509.Certificate{NotBefore: began}, began.Add(Backdate)},
	} {
		if got := Follows(&c.leaf); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
