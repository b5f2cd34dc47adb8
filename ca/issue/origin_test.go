package issue

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A leaf contains the proof of its identity as the CA knows it, whatever the CSR contains; a leaf without it has no
// origin.
// Promise: security-limits.md#streams-connections-and-messages, security-limits.md#terms
func TestOrigin(t *testing.T) {
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
	lie, err := Origin{Pod: "victim"}.extensions()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{ExtraExtensions: lie}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	for _, want := range []Origin{{}, {Pod: "web-1", PodUID: "u", Cluster: "west"}, {Token: strings.Repeat("ä", 200)}} {
		out, err := Issue(a, Request{CSR: csr, Identity: spiffeid.RequireFromPath(td, "/ns/a/sa/b"), Proven: now, Origin: want}, Policy{}, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := OriginOf(out.Leaf); got != want {
			t.Errorf("origin %+v, want %+v", got, want)
		}
		if len(out.Leaf.UnhandledCriticalExtensions) > 0 || !Proven(out.Leaf).Equal(now) {
			t.Error("a critical extension, or it does not say when it was proven")
		}
	}
}
