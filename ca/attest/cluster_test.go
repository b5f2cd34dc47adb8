package attest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"testing"

	"google.golang.org/grpc/metadata"
)

// The issuers of two clusters have the same name, as by Kubernetes' default, and their keys the same id: a caller
// belongs to the cluster whose keys verify the token, also if tokens are exchanged and cached.
// Promise: security-workloads.md#tokens
func TestTwoClustersOfOneIssuer(t *testing.T) {
	east, west, foreign := ecKey(), must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	v := verifier(t, nil, func(c *TokensConfig) {
		c.Issuers = []TokenIssuer{{kube, "east", static(jwk("k", east))}, {kube, "west", static(jwk("k", west))}}
	})
	for range 2 { // the second time from the cache
		for want, key := range map[string]crypto.Signer{"east": east, "west": west} {
			if got, err := v.Verify(t.Context(), sign(key, "k", bound(nil))); err != nil || got.Cluster != want || got.Pod != "web-1" {
				t.Errorf("a token of %s: %+v, %v", want, got, err)
			}
		}
	}
	token := sign(east, "k", bound(nil))
	// a token verified for a cluster counts for that cluster only
	for cluster, want := range map[string]error{"": nil, "east": nil, "west": ErrSignature} {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Error(err)
		}
		if _, err := v.Verify(of(t, cluster), token); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("a token of east, by a call of %q: %v", cluster, err)
		}
	}
	if got, err := v.Verify(t.Context(), sign(foreign, "k", bound(nil))); !errors.Is(err, ErrSignature) {
		t.Errorf("a token of neither: %+v, %v", got, err)
	}
	if got, err := v.Verify(t.Context(), sign(west, "other", bound(nil))); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a key of neither: %+v, %v", got, err)
	}
}

// of returns the context of a call from a cluster.
func of(t testing.TB, cluster string) context.Context {
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs("clusterid", cluster))
}

// A call names its cluster, and a token of another cluster is refused, although the issuers of both have one name and
// their keys one id, and although the token is good and remembered where it belongs. A call that names none is of the
// config cluster. Where even the key is the same (clusters made of one image) the cluster is the one that is named. Our
// own issuer, which is of no cluster, speaks for all.
// Promise: security-workloads.md#tokens
func TestCallsNameTheirCluster(t *testing.T) {
	east, west, both, own := ecKey(), newEC(), newEC(), newEC()
	remote := map[string]TokenIssuer{"west": {"", "west", must(NewKeys(KeysConfig{Whose: "west", Ask: (&api{issuer: kube, keys: jwks(jwk("k", west), jwk("b", both))}).ask}))}}
	v := verifier(t, nil, func(c *TokensConfig) {
		c.Issuers = []TokenIssuer{{kube, "east", static(jwk("k", east), jwk("b", both))}, {"own", "", static(jwk("o", own))}}
		c.Cluster, c.Remote = "east", func(cluster string) (TokenIssuer, bool) { i, is := remote[cluster]; return i, is }
	})
	ofEast, ofWest, ofBoth, ofOwn := sign(east, "k", bound(nil)), sign(west, "k", bound(nil)), sign(both, "b", bound(nil)), sign(own, "o", bound(map[string]any{"iss": "own"}))
	for range 2 { // the second time from the cache
		for _, one := range []struct {
			says, cluster, token string
			refused              error
		}{
			{"east", "east", ofEast, nil}, {"", "east", ofEast, nil}, {"west", "west", ofWest, nil},
			{"west", "", ofEast, ErrSignature}, {"east", "", ofWest, ErrSignature}, {"", "", ofWest, ErrSignature},
			{"east", "east", ofBoth, nil}, {"west", "west", ofBoth, nil},
			{"north", "", ofEast, ErrUnavailable}, {"north", "", ofWest, ErrUnavailable},
		} {
			got, err := v.Verify(of(t, one.says), one.token)
			if !errors.Is(err, one.refused) || (err == nil) != (one.refused == nil) || got.Cluster != one.cluster {
				t.Errorf("a call of %q: %+v, %v, want %q, %v", one.says, got, err, one.cluster, one.refused)
			}
		}
		for _, says := range []string{"", "east", "west", "north"} {
			if got, err := v.Verify(of(t, says), ofOwn); err != nil || got.Cluster != "" {
				t.Errorf("a token of our own, by a call of %q: %+v, %v", says, got, err)
			}
		}
	}
	if n := v.known.Len(); n != 5 { // three of east and west, with the key that both have counted twice, and one of our own
		t.Errorf("%d tokens are remembered", n)
	}
	two := metadata.NewIncomingContext(t.Context(), metadata.Pairs("clusterid", "east", "clusterid", "west"))
	if _, err := v.Verify(two, ofEast); !errors.Is(err, ErrMalformed) {
		t.Errorf("of two clusters: %v", err)
	}
	remote["west"] = TokenIssuer{"", "west", must(NewKeys(KeysConfig{Whose: "another west", Ask: (&api{issuer: kube, keys: jwks(jwk("k", newEC()))}).ask}))}
	if got, err := v.Verify(of(t, "west"), ofWest); !errors.Is(err, ErrSignature) {
		t.Errorf("a remembered token, once the cluster of its name is another one: %+v, %v", got, err)
	}
	delete(remote, "west")
	if got, err := v.Verify(of(t, "west"), ofWest); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a remembered token, once the cluster is gone: %+v, %v", got, err)
	}
}

// Only tokens of the config cluster are shown to its API server for review.
// Promise: security-workloads.md#tokens
func TestReviewOfOtherClusters(t *testing.T) {
	asked := 0
	v := verifier(t, nil, func(c *TokensConfig) {
		c.Issuers, c.Cluster = nil, "east"
		c.Reviewer = reviewerFunc(func() (Reviewed, error) {
			asked++
			return Reviewed{Namespace: "shop", ServiceAccount: "web", Pod: "web-1", Cluster: "east"}, nil
		})
	})
	token := sign(ecKey(), "k", bound(nil))
	if _, err := v.Verify(of(t, "west"), token); !errors.Is(err, ErrUnavailable) || asked != 0 {
		t.Errorf("of another cluster: %v, asked %d times", err, asked)
	}
	if _, err := v.Verify(of(t, "east"), token); err != nil || asked != 1 {
		t.Errorf("of the config cluster: %v, asked %d times", err, asked)
	}
}

type reviewerFunc func() (Reviewed, error)

func (f reviewerFunc) Review(context.Context, string, []string) (Reviewed, error) { return f() }
