package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// played is an API server with its own keys, and an issuer's name that all of them share. While it is away it answers
// no request.
type played struct {
	key  *ecdsa.PrivateKey
	away atomic.Bool
	api  *apiserver.Client
}

func play(t *testing.T) *played {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &played{key: key}
	p.api = p.client(t, keys)
	return p
}

func (p *played) client(t *testing.T, keys []byte) *apiserver.Client {
	return apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case p.away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/openid/v1/jwks":
			_, _ = w.Write(keys)
		default:
			fmt.Fprint(w, `{"issuer": "https://kubernetes.default.svc"}`)
		}
	})
}

// token is one of service account shop/web.
func (p *played) token(t *testing.T) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:shop:web", "aud": "istio-ca",
		"exp": time.Now().Add(time.Hour).Unix(), "kubernetes.io": map[string]any{"namespace": "shop", "serviceaccount": map[string]any{"name": "web"}}}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Tokens of other clusters are verified with the keys of those clusters' own API servers, for calls of that cluster
// only. A cluster whose API server is away keeps its last keys, also with new credentials, and in a process that starts
// then. A cluster without a Secret is unknown, and its stored keys are deleted.
// Promise: security-workloads.md#tokens
func TestTokensOfOtherClusters(t *testing.T) {
	east, west, dir := play(t), play(t), t.TempDir()
	gone := make(chan struct{}, 1)
	run := func(ctx context.Context) (*Clusters, *attest.Tokens, chan error) {
		c, ended := NewClusters(dir, func() { gone <- struct{}{} }, slog.New(slog.DiscardHandler)), make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		tokens, err := attest.NewTokens(attest.TokensConfig{TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local"), Cluster: "home", Remote: c.Issuer,
			Issuers: []attest.TokenIssuer{{Name: "none", Cluster: "home", Keys: keysOf(t, east)}}})
		if err != nil {
			t.Fatal(err)
		}
		return c, tokens, ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, tokens, ended := run(ctx)
	verify := func(tokens *attest.Tokens, cluster string, of *played) error {
		got, err := tokens.Verify(metadata.NewIncomingContext(t.Context(), metadata.Pairs("clusterid", cluster)), of.token(t))
		if err == nil && got.Cluster != cluster {
			t.Errorf("a caller of cluster %s is of %s", cluster, got.Cluster)
		}
		return err
	}
	becomes := func(what string, tokens *attest.Tokens, cluster string, of *played, want error) {
		t.Helper()
		for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // applied credentials are not reported
			err := verify(tokens, cluster, of)
			if errors.Is(err, want) && (err == nil) == (want == nil) {
				return
			}
			if time.Now().After(until) {
				t.Fatalf("%s: %v, want %v", what, err, want)
			}
		}
	}
	if err := verify(tokens, "west", west); !errors.Is(err, attest.ErrUnavailable) {
		t.Errorf("a cluster that nobody knows: %v", err)
	}
	c.Take(map[string]*apiserver.Client{"east": east.api, "west": west.api})
	becomes("west", tokens, "west", west, nil)
	becomes("east", tokens, "east", east, nil)
	for name, other := range map[string]*played{"east": west, "west": east} {
		if err := verify(tokens, name, other); !errors.Is(err, attest.ErrDenied) {
			t.Errorf("a token of another cluster, to %s: %v", name, err)
		}
	}
	west.away.Store(true)
	if err := verify(tokens, "west", west); err != nil {
		t.Errorf("while its API server is away: %v", err)
	}
	before, _ := c.Issuer("west")
	c.Take(map[string]*apiserver.Client{"east": east.api, "west": west.client(t, nil)})
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if now, _ := c.Issuer("west"); now.Keys != before.Keys {
			break
		} else if time.Now().After(until) {
			t.Fatal("other credentials are not used")
		}
	}
	if err := verify(tokens, "west", west); err != nil {
		t.Errorf("with other credentials, while its API server is away: %v", err)
	}
	cancel()
	<-ended
	if len(gone) != 0 {
		t.Error("no cluster has gone, and somebody was told so")
	}

	c, tokens, _ = run(t.Context())
	c.Take(map[string]*apiserver.Client{"west": west.api})
	becomes("after a start while its API server is away", tokens, "west", west, nil)
	c.Take(map[string]*apiserver.Client{"other": east.api})
	becomes("the cluster that came", tokens, "other", east, nil)
	becomes("once no Secret names it", tokens, "west", west, attest.ErrUnavailable)
	<-gone
	if _, err := os.Stat(c.file("west")); !os.IsNotExist(err) {
		t.Errorf("what was kept of it: %v", err)
	}
	if c.Access("west") != nil || c.Access("other") == nil {
		t.Error("who is asked for rights")
	}
}

// A fetch that was under way when its cluster was removed does not save keys again.
func TestRemovedClustersAreForgotten(t *testing.T) {
	asked, hold := make(chan struct{}, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: play(t).key.Public(), KeyID: "k", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	api := apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openid/v1/jwks" {
			fmt.Fprint(w, `{"issuer": "https://kubernetes.default.svc"}`)
			return
		}
		asked <- struct{}{}
		<-hold
		_, _ = w.Write(keys)
	})
	gone := make(chan struct{}, 1)
	c := NewClusters(t.TempDir(), func() { gone <- struct{}{} }, slog.New(slog.DiscardHandler))
	go func() { _ = c.Run(t.Context()) }()
	c.Take(map[string]*apiserver.Client{"west": api})
	<-asked
	west, known := c.Issuer("west")
	for ; !known; west, known = c.Issuer("west") {
		time.Sleep(time.Millisecond) // the fetch begins before the cluster is known
	}
	c.Take(map[string]*apiserver.Client{})
	<-gone
	fetched := make(chan error, 1)
	go func() { fetched <- west.Keys.Refresh(t.Context()) }() // waits for the fetch under way
	release()
	if err := <-fetched; err != nil || !west.Keys.Loaded() {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.file("west")); !os.IsNotExist(err) {
		t.Errorf("the keys of a removed cluster are saved: %v", err)
	}
}

func keysOf(t *testing.T, p *played) *attest.Keys {
	t.Helper()
	keys, err := attest.NewKeys(attest.KeysConfig{Ask: Keys(p.api), Whose: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
