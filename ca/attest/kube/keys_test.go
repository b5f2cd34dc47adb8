//go:build kube

package kube

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/store/apiserver"
)

// verifier returns a verifier of tokens of a cluster's API server.
func verifier(t *testing.T, cluster, memory string, api *apiserver.Client) (*attest.Tokens, *attest.Keys) {
	t.Helper()
	keys, err := attest.NewKeys(attest.KeysConfig{Ask: Keys(api), Whose: "cluster " + cluster, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := attest.NewTokens(attest.TokensConfig{TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local"), Issuers: []attest.TokenIssuer{{Cluster: cluster, Keys: keys}}})
	if err != nil {
		t.Fatal(err)
	}
	return tokens, keys
}

// token requests a token of service account shop/web from an API server; more are further flags of kubectl.
func token(t *testing.T, c *controlplane.ControlPlane, more ...string) string {
	t.Helper()
	return strings.TrimSpace(c.Kubectl(t, "", append([]string{"create", "token", "web", "-n", "shop"}, more...)...))
}

// If two real API servers have the same issuer, the tokens of each belong to its own cluster, also in a process that
// starts while both are away. Tokens for other audiences and expired tokens are refused.
// Promise: security-workloads.md#tokens
func TestKubeTokens(t *testing.T) {
	east, west := controlplane.Start(t, controlplane.Options{}), controlplane.Start(t, controlplane.Options{})
	for _, c := range []*controlplane.ControlPlane{east, west} {
		c.Kubectl(t, "", "create", "namespace", "shop")
		c.Kubectl(t, "", "create", "serviceaccount", "web", "-n", "shop")
	}
	east.Kubectl(t, "{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop}, spec: {serviceAccountName: web, containers: [{name: app, image: app}]}}", "apply", "-f", "-")
	east.Kubectl(t, `{apiVersion: v1, kind: Node, metadata: {name: node-1}}`, "apply", "-f", "-")
	dir, apiEast, apiWest := t.TempDir(), connect(t, east), connect(t, west)
	ofEast, _ := verifier(t, "east", filepath.Join(dir, "east"), apiEast)
	ofWest, _ := verifier(t, "west", filepath.Join(dir, "west"), apiWest)

	bound := token(t, east, "--audience=istio-ca", "--bound-object-kind=Pod", "--bound-object-name=web-1")
	uid := east.Kubectl(t, "", "get", "pod", "web-1", "-n", "shop", "-o", "jsonpath={.metadata.uid}")
	for name, one := range map[string]string{"free": token(t, east, "--audience=istio-ca"), "of a Pod": bound,
		"of a Node": token(t, east, "--audience=istio-ca", "--bound-object-kind=Node", "--bound-object-name=node-1")} {
		got, err := ofEast.Verify(t.Context(), one)
		if err != nil || got.ID.String() != "spiffe://cluster.local/ns/shop/sa/web" || got.Cluster != "east" || got.NotAfter.Before(time.Now()) {
			t.Errorf("token %s: %+v, %v", name, got, err)
		}
		if name == "of a Pod" && (got.Pod != "web-1" || got.PodUID != uid) || name != "of a Pod" && got.Pod != "" {
			t.Errorf("token %s: Pod %q %q", name, got.Pod, got.PodUID)
		}
		if _, err := ofWest.Verify(t.Context(), one); !errors.Is(err, attest.ErrDenied) {
			t.Errorf("token %s, to the other cluster: %v", name, err)
		}
	}
	for want, one := range map[error]string{
		attest.ErrAudience:  token(t, east), // the API server's own
		attest.ErrMalformed: "admintoken",
	} {
		if _, err := ofEast.Verify(t.Context(), one); !errors.Is(err, want) {
			t.Errorf("want %v: %v", want, err)
		}
	}
	east.KillAPIServer()
	west.KillAPIServer()
	again, keys := verifier(t, "east", filepath.Join(dir, "east"), apiEast)
	if got, err := again.Verify(t.Context(), bound); err != nil || got.Cluster != "east" {
		t.Errorf("after a restart, without an API server: %+v, %v", got, err)
	}
	if !keys.Fetched().IsZero() {
		t.Error("keys that were kept count as fetched")
	}
	moved, _ := verifier(t, "west", filepath.Join(dir, "east"), apiWest)
	if _, err := moved.Verify(t.Context(), bound); !errors.Is(err, attest.ErrUnavailable) {
		t.Errorf("another cluster's memory: %v", err)
	}
}
