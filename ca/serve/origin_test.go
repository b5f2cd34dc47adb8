package serve_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

// bound is an authenticator whose tokens have an origin.
type bound struct {
	attest.Authenticator
	origin issue.Origin
}

func (b *bound) Authenticate(ctx context.Context) (attest.Caller, error) {
	who, err := b.Authenticator.Authenticate(ctx)
	who.Pod, who.PodUID, who.Token, who.Cluster = b.origin.Pod, b.origin.PodUID, b.origin.Token, b.origin.Cluster
	return who, err
}

// All certificates that follow from one token, by renewals in sequence, belong to the token's Pod and cluster, and
// count as the same credential as the token. A certificate without an origin counts as the origin of its renewals.
// Promise: security-workloads.md#identity-and-private-keys
func TestCertificatesHaveTheOriginOfTheirToken(t *testing.T) {
	certificates := &attest.Certificates{TrustDomain: servetest.TrustDomain}
	for _, origin := range []issue.Origin{{Pod: "cart-1", PodUID: "u", Cluster: "west"}, {Token: "jti", Cluster: "east"}, {}} {
		tokens := &bound{origin: origin}
		l := &later{t: t, now: time.Now()}
		cfg := quiet()
		cfg.Authenticator = attest.Chain(certificates, tokens)
		cfg.Renewals = serve.Renewals{Alone: 48 * time.Hour}
		l.CA = servetest.Start(t, cfg)
		tokens.Authenticator = l.CA
		ask := func(own *tls.Certificate) (*tls.Certificate, attest.Caller) {
			token := ""
			if own == nil {
				token = l.Token("shop", "cart")
			}
			got := l.must(l.ask(token, own, 0))
			who, err := certificates.Verify(got.Leaf)
			if err != nil {
				t.Fatal(err)
			}
			return got, who
		}
		first, by := ask(nil)
		want := attest.Caller{Pod: origin.Pod, PodUID: origin.PodUID, Token: origin.Token}.Credential()
		if origin == (issue.Origin{}) {
			want = by.Serial
		}
		for own, n := first, 0; n < 3; n++ {
			var who attest.Caller
			own, who = ask(own)
			if by.Credential() != want || who.Credential() != want || who.Cluster != origin.Cluster || who.Pod != origin.Pod || who.Serial == by.Serial {
				t.Errorf("renewal %d of %+v: %+v", n+1, origin, who)
			}
		}
	}
}
