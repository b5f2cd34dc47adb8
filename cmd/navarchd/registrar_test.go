package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	meshv1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/push/identities"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/store/apiserver/apiservertest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// served captures the service of an assembly.
type served struct{ *caserve.Server }

// RegisterService implements grpc.ServiceRegistrar.
func (r *served) RegisterService(_ *grpc.ServiceDesc, server any) {
	r.Server, _ = server.(*caserve.Server)
}

// meshOf returns a snapshot whose mesh configuration names the certificate of signer a.b/c.
func meshOf(t *testing.T) *mirror.Snapshot {
	t.Helper()
	root, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	spec := model.MeshDefaults()
	spec.CaCertificates = []*meshv1.MeshConfig_CertificateData{{CertSigners: []string{"a.b/c"},
		CertificateData: &meshv1.MeshConfig_CertificateData_Pem{Pem: string(issue.EncodeCertificates(root.Roots...))}}}
	mesh, err := model.New(model.MeshKey, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	return mirror.Empty().Apply(1, []model.Record{mesh}, nil).New
}

// At most 64 requests to a hanging Kubernetes signer are under way, whatever their callers: the next one waits until
// one of them has ended.
// Promise: security-ca.md#signers-of-kubernetes
func TestRegistrationsUnderWay(t *testing.T) {
	begun := make(chan struct{}, 1000)
	api := apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete { // requests that have ended
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then it is seen that a client goes
		begun <- struct{}{}
		<-r.Context().Done()
	})
	c := &config{dataDir: t.TempDir(), trustDomain: "cluster.local"}
	c.env.signer, c.env.audiences, c.env.certTTL, c.env.maxCertTTL = "a.b/c", []string{"istio-ca"}, time.Hour, time.Hour
	mesh := meshOf(t)
	a := &assembly{config: c, log: quiet, api: api, snapshot: func() *mirror.Snapshot { return mesh }}
	a.denied = identities.NewDenied(a.snapshot)
	var err error
	if a.callers, err = callers.New(c.callersConfig(a.snapshot, clusterFacts{}, nil, quiet)); err != nil {
		t.Fatal(err)
	}
	if err := a.addRegistrar(); err != nil {
		t.Fatal(err)
	}
	server := &served{}
	a.secure[0](server)
	issuer, err := attest.Local(c.dataDir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, end := context.WithCancel(ctx)
	defer end()
	for i := range 65 {
		account := fmt.Sprint("account-", i)
		token, _, err := issuer.Mint("shop", account, "istio-ca", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/shop/sa/" + account}}}, key)
		if err != nil {
			t.Fatal(err)
		}
		asked := &securityv1.IstioCertificateRequest{Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}
		under := ctx
		if i == 0 {
			under = first
		}
		all.Go(func() {
			_, _ = server.CreateCertificate(metadata.NewIncomingContext(under, metadata.Pairs("authorization", "Bearer "+token)), asked) // it ends with the test
		})
		if i == 0 {
			<-begun
		}
	}
	servetest.Soon(t, "64 are under way, and one waits", func() bool {
		s := server.Stats()
		return s.Signing == 64 && s.First == 1 && len(begun) == 63
	})
	end()
	servetest.Soon(t, "the one that waited is under way", func() bool {
		s := server.Stats()
		return s.Signing == 64 && s.First == 0 && len(begun) == 64
	})
}
