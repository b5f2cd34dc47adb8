//go:build kube

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// A real API server reviews tokens, with the documented rights. Tokens for our audience yield their account and Pod.
// Others are refused, and so is the token of a deleted Pod whose last review was positive. While the API server is away
// the last results are used, a positive one until its token ends, and one source may have a bounded number of tokens
// reviewed. When it is back, tokens are reviewed again.
// Promise: security-workloads.md#tokens
func TestKubeReviews(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{})
	c.Kubectl(t, "", "create", "namespace", "shop")
	c.Kubectl(t, "", "create", "serviceaccount", "web", "-n", "shop")
	for _, pod := range []string{"web-1", "web-2"} {
		c.Kubectl(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop}, spec: {serviceAccountName: web, containers: [{name: app, image: app}]}}", pod), "apply", "-f", "-")
	}
	reviews, now := NewReviews(connect(t, c), "east"), time.Now()
	reviews.now = func() time.Time { return now }
	tokens, err := attest.NewTokens(attest.TokensConfig{TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local"), Cluster: "east", Reviewer: reviews, Leeway: -1,
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	verify := func(token string) (attest.Caller, error) { return tokens.Verify(t.Context(), token) }
	of := func(pod string, more ...string) string {
		return token(t, c, append([]string{"--audience=istio-ca", "--bound-object-kind=Pod", "--bound-object-name=" + pod}, more...)...)
	}
	stays, goes := of("web-1", "--duration=1h"), of("web-2", "--duration=1h")
	var later []string // issued while the API server answers
	for range sourceBurst + 5 {
		later = append(later, of("web-1", "--duration=1h"))
	}
	until(t, "navarchd may ask", func() bool {
		now = now.Add(time.Second)
		_, err := verify(stays)
		return err == nil || !strings.Contains(err.Error(), "403")
	})
	for _, one := range []string{stays, goes} {
		if got, err := verify(one); err != nil || got.ID.String() != "spiffe://cluster.local/ns/shop/sa/web" || got.Cluster != "east" || got.PodUID == "" {
			t.Fatalf("a good token: %+v, %v", got, err)
		}
	}
	for name, one := range map[string]struct {
		token string
		want  error
	}{
		"for the API server":   {token(t, c), attest.ErrAudience},
		"with another subject": {forge(t, stays), attest.ErrDenied},
	} {
		if _, err := verify(one.token); !errors.Is(err, one.want) {
			t.Errorf("a token %s: %v", name, err)
		}
	}
	c.Kubectl(t, "", "delete", "pod", "web-2", "-n", "shop", "--grace-period=0", "--force")
	until(t, "the token of a Pod that was deleted is refused", func() bool { // the API server remembers its own answers for some seconds
		now = now.Add(time.Second)
		for _, key := range reviews.good.Keys() { // as if it were time to ask again
			last, _ := reviews.good.Peek(key)
			reviews.good.Add(key, reviewedAt{answer: last.answer})
		}
		_, err := verify(goes)
		return errors.Is(err, attest.ErrDenied) && !errors.Is(err, attest.ErrExpired)
	})
	if _, err := verify(stays); err != nil {
		t.Errorf("the token of the other Pod: %v", err)
	}

	c.KillAPIServer()
	now = now.Add(reviewStands)
	if _, err := verify(stays); err != nil {
		t.Errorf("while the API server is away: %v", err)
	}
	if _, err := verify(goes); err == nil {
		t.Error("a token that was refused is accepted while the API server is away")
	}
	source := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}})
	asked, turned := 0, 0
	for _, one := range later {
		_, err := tokens.Verify(source, one)
		switch {
		case !errors.Is(err, attest.ErrUnavailable):
			t.Fatalf("a token that nobody has answered about: %v", err)
		case strings.Contains(err.Error(), "too many"):
			turned++
		default:
			asked++
		}
	}
	if asked != sourceBurst || turned != len(later)-sourceBurst {
		t.Errorf("of one source %d tokens were asked about and %d were not, want %d and %d", asked, turned, sourceBurst, len(later)-sourceBurst)
	}
	c.StartAPIServer(t)
	now = now.Add(reviewStands)
	until(t, "a token that nobody could answer about is accepted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := tokens.Verify(ctx, later[0])
		now = now.Add(300 * time.Millisecond)
		return err == nil
	})
	now = now.Add(2 * time.Hour)
	if _, err := verify(stays); !errors.Is(err, attest.ErrExpired) {
		t.Errorf("once its token has ended: %v", err)
	}
}

// forge returns the token with the signature of another one.
func forge(t *testing.T, token string) string {
	t.Helper()
	head, rest, _ := strings.Cut(token, ".")
	claims, signature, is := strings.Cut(rest, ".")
	if !is {
		t.Fatal("not a token")
	}
	return head + "." + claims + "." + strings.ToUpper(signature)
}
