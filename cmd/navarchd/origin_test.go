package main

import (
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/serve"
)

// Who has certificates minted with one stolen token, and a stream for each, has what one credential may have: the streams of others
// of the account stay.
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
