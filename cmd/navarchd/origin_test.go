package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/mirror"
)

// Certificates minted with one stolen token, and a stream with each, count as one credential: the streams of others of
// the account stay.
// Promise: security-limits.md#streams-connections-and-messages, security-limits.md#terms
func TestCertificatesOfOneTokenAreOneCredential(t *testing.T) {
	const minted = 10_000
	authority, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	certificates := &attest.Certificates{TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local")}
	const id = "spiffe://cluster.local/ns/shop/sa/client"
	ledger := budget.New(budget.Config{})
	ended := 0
	for range 100 {
		who := attest.Caller{ID: spiffeid.RequireFromString(id), Serial: time.Now().String()}
		if _, err := ledger.Enter(serve.Holder(who, "192.0.2.1:1"), func(error) { ended++ }); err != nil {
			t.Fatal(err)
		}
	}
	for _, origin := range []issue.Origin{{Token: "stolen"}, {Pod: "stolen-1", PodUID: "u"}} {
		leaf := originated(t, authority, id, origin)
		for i := range minted {
			leaf.SerialNumber.SetInt64(int64(i)) // as another one of the CA would have
			who, err := certificates.Verify(leaf)
			if err != nil {
				t.Fatal(err)
			}
			if e, err := ledger.Enter(serve.Holder(who, "192.0.2.1:1"), func(error) {}); err == nil {
				e.Node("invented")
			}
		}
	}
	if streams, credentials, _ := ledger.Count(id); streams > 100+2*1024 || credentials != 102 || ended > 0 {
		t.Errorf("%d streams, %d credentials; %d of others ended", streams, credentials, ended)
	}
}

// A CA beside navarchd may copy extensions from the CSRs of workloads. A certificate of the mesh's own CA names the
// token that it was issued for. With another CA no certificate does: neither its Pod, nor its cluster, nor the time of
// the proof.
// Promise: security-ca.md#roots-of-several-cas
func TestOriginOfAnotherCA(t *testing.T) {
	authority, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	forged, _ := signedPair(t, authority, issue.Request{Identity: spiffeid.RequireFromString("spiffe://cluster.local/ns/istio-system/sa/x"),
		Origin: issue.Origin{Pod: "gateway-0", PodUID: "u", Cluster: "east"}, Proven: time.Now().Add(time.Hour)})
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{forged}, VerifiedChains: [][]*x509.Certificate{{forged}}}}})
	for name, variable := range map[string]string{"our own": "", "another": "ENABLE_CA_SERVER", "a signer": "EXTERNAL_CA"} {
		c := &config{dataDir: t.TempDir(), trustDomain: "cluster.local", cluster: "east"}
		value := map[string]string{"ENABLE_CA_SERVER": "false", "EXTERNAL_CA": kubernetesSigners}[variable]
		if err := c.env.read(func(name string) (string, bool) { return value, name == variable && value != "" }); err != nil {
			t.Fatal(err)
		}
		k, err := callers.New(c.callersConfig(func() *mirror.Snapshot { return nil }, clusterFacts{}, nil, quiet))
		if err != nil {
			t.Fatal(err)
		}
		who, err := k.Authenticate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if own := variable == ""; who.ProvesToBeOf("east") != own || (who.Pod == "gateway-0") != own || who.Issued.After(time.Now().Add(time.Minute)) != own {
			t.Errorf("%s CA: %+v", name, who)
		}
	}
}
