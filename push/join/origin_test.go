package join

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
)

// originated is a workload's certificate that follows from a token.
func originated(t *testing.T, by *issue.Authority, origin issue.Origin) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := issue.Issue(by, issue.Request{Identity: spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/client"), Origin: origin,
		CSR: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})}, issue.Policy{}, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return issued.Leaf
}

// A certificate is of the cluster whose keys verified its token. If the issuers of two clusters have one name,
// certificates for their tokens open no stream of a proxy of the other cluster. A certificate without a cluster may be
// of any.
// Promise: security-workloads.md#tokens, security-workloads.md#what-it-says-of-itself
func TestClusterOfACertificate(t *testing.T) {
	authority, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	certificates := &attest.Certificates{TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local")}
	now := time.Unix(1_700_000_000, 0)
	s := newScopes(t, endpointsOf(t, nil), &now)
	s.clusters, s.networks, s.at = map[string]bool{"east": true, "west": true, "Kubernetes": true}, map[string]bool{}, now
	for _, one := range []struct {
		by, says string
		want     codes.Code
	}{{"east", "east", codes.OK}, {"west", "west", codes.OK}, {"east", "west", codes.PermissionDenied}, {"west", "east", codes.PermissionDenied},
		{"west", "", codes.PermissionDenied}, {"", "west", codes.OK}} {
		who, err := certificates.Verify(originated(t, authority, issue.Origin{Token: "t", Cluster: one.by}))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.accept(serve.Client{Caller: who}, &view.Node{Cluster: one.says, Domain: "svc.cluster.local"}); status.Code(err) != one.want {
			t.Errorf("token of %q, node of %q: %v", one.by, one.says, err)
		}
	}
}
