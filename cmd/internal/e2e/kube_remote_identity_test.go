//go:build kube

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/push/xds"
)

// webPod is the one workload of each cluster in these tests.
const webPod = `{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop}, spec: {serviceAccountName: web, containers: [{name: app, image: app}]}}
`

// webToken creates the Pod, and returns a token that is bound to it.
func webToken(t *testing.T, c *controlplane.ControlPlane) string {
	t.Helper()
	c.Kubectl(t, webPod, "apply", "-f", "-")
	c.Kubectl(t, "", "-n", "shop", "patch", "pod", "web-1", "--subresource=status", "-p",
		`{"status": {"phase": "Running", "podIP": "10.244.0.1", "podIPs": [{"ip": "10.244.0.1"}], "conditions": [{"type": "Ready", "status": "True"}]}}`)
	return strings.TrimSpace(c.Kubectl(t, "", "create", "token", "web", "-n", "shop", "--audience=istio-ca", "--bound-object-kind=Pod", "--bound-object-name=web-1"))
}

// ofCluster returns the context of a call that claims a cluster.
func ofCluster(ctx context.Context, cluster string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "clusterid", cluster)
}

// inCluster returns a node that claims a cluster.
func inCluster(n *corev3.Node, cluster string) *corev3.Node {
	n.Metadata.Fields["CLUSTER_ID"] = structpb.NewStringValue(cluster)
	return n
}

// swapped makes calls of each cluster with the other cluster's credentials: the CA and xDS refuse them. While a cluster
// is away, its newest key may be unknown here. So a token by an unknown key is refused with the request to try again.
func swapped(t *testing.T, d *daemon, conf *tls.Config, tokens map[string]string, own map[string]credentials.TransportCredentials, away string) {
	t.Helper()
	for of, to := range map[string]string{"west": "Kubernetes", "Kubernetes": "west"} {
		want := codes.Unauthenticated
		if to == away {
			want = codes.Unavailable
		}
		as, ctx := inCluster(node("shop", "web", "10.244.0.1"), to), ofCluster(bearer(t.Context(), tokens[of]), to)
		if _, _, err := signed(ctx, t, d.secure, conf); status.Code(err) != want || !strings.Contains(err.Error(), "by the keys of cluster "+to) {
			t.Errorf("a token of %s, by a call of %s: %v", of, to, err)
		}
		if _, err := everythingAs(ctx, credentials.NewTLS(conf), d.secure, as); status.Code(err) != want {
			t.Errorf("a stream of %s with a token of %s: %v", to, of, err)
		}
		if _, err := everythingAs(t.Context(), own[of], d.secure, as); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a stream of %s with a certificate that follows from a token of %s: %v", to, of, err)
		}
	}
}

// withoutItsSecret deletes the Secret that names west: the stream that its token has opened ends, that of the config
// cluster does not, and neither a certificate nor another stream is had by it.
func withoutItsSecret(t *testing.T, home *controlplane.ControlPlane, d *daemon, conf *tls.Config, tokens map[string]string) {
	t.Helper()
	streams := map[string]deltaStream{}
	for name, token := range tokens {
		streams[name], _ = openStreamAs(ofCluster(bearer(t.Context(), token), name), t, d.secure, credentials.NewTLS(conf), inCluster(node("shop", "web", "10.244.0.1"), name))
		res, err := streams[name].Recv()
		if err == nil {
			err = streams[name].Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce})
		}
		if err != nil {
			t.Fatalf("a stream of %s by its token: %v", name, err)
		}
	}
	home.Kubectl(t, "", "-n", "istio-system", "delete", "secret", "istio-remote-secret-west")
	if res, err := streams["west"].Recv(); err == nil || status.Code(err) == codes.DeadlineExceeded { // its connection is closed, too: what it is told may not arrive
		t.Errorf("the stream of west by its token, when no Secret names west: %v, %v", res, err)
	}
	d.said(t, 1, "stream closed", "by a token of cluster west, which the mesh no longer has")
	if err := streams["Kubernetes"].Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Listener.URL()}); err != nil {
		t.Error(err)
	}
	if _, err := streams["Kubernetes"].Recv(); err != nil {
		t.Errorf("the stream of the config cluster: %v", err)
	}
	if _, _, err := signed(ofCluster(bearer(t.Context(), tokens["west"]), "west"), t, d.secure, conf); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not known here") {
		t.Errorf("a certificate, when no Secret names west: %v", err)
	}
	as := inCluster(node("shop", "web", "10.244.0.1"), "west")
	if _, err := everythingAs(ofCluster(bearer(t.Context(), tokens["west"]), "west"), credentials.NewTLS(conf), d.secure, as); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not known here") {
		t.Errorf("another stream, when no Secret names west: %v", err)
	}
}

// Two real clusters have issuers with the same name. A token is valid only for calls of the cluster whose API server
// issued it: swapped tokens are refused, by the CA and by xDS. A gateway of the second cluster gets the Secret of its
// own cluster, with its own API server's authorisation; a gateway of the config cluster does not. The credential of a
// deleted Pod of the second cluster is refused. While the second cluster's API server is away, its tokens stay valid.
// Once no Secret names the cluster, they are refused, and an open stream ends.
// Promise: security-workloads.md#tokens
func TestKubeIdentitiesOfTwoClusters(t *testing.T) {
	home, west := twoClusters(t)
	clusters := map[string]*controlplane.ControlPlane{"Kubernetes": home, "west": west}
	data, dir, kubeconfig := t.TempDir(), t.TempDir(), rights.Documented(t, home)
	write(t, dir, "gateway.yaml", siteGateway)
	home.Kubectl(t, "", "create", "namespace", "shop")
	tokens := map[string]string{}
	for name, c := range clusters {
		c.Kubectl(t, ratings+"---\n"+readers("web"), "apply", "-f", "-")
		tokens[name] = webToken(t, c)
	}
	west.Kubectl(t, newSite(t, 201).secret(""), "apply", "-f", "-")
	home.Kubectl(t, remoteSecretOf(t, west, "first"), "apply", "-f", "-")

	d := start(t, "--kubeconfig", kubeconfig, "--config-dir", dir, "--data-dir", data)
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "istiod.istio-system.svc"}
	eventually(t, patience, func() error {
		text, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
		conf.RootCAs.AppendCertsFromPEM(text)
		return err
	})
	with := func(cluster, token string) (tls.Certificate, error) {
		pair, _, err := signed(ofCluster(bearer(t.Context(), token), cluster), t, d.secure, conf)
		return pair, err
	}
	own := map[string]credentials.TransportCredentials{}
	for name, token := range tokens {
		eventually(t, patience, func() error {
			pair, err := with(name, token)
			shown := conf.Clone()
			shown.Certificates = []tls.Certificate{pair}
			own[name] = credentials.NewTLS(shown)
			return err
		})
	}
	eventually(t, patience, d.ready) // before that all streams are refused
	swapped(t, d, conf, tokens, own, "")
	if _, _, err := signed(bearer(t.Context(), tokens["west"]), t, d.secure, conf); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a token of west, by a call that names no cluster: %v", err)
	}

	has := func(cluster string) (sent, removed []string, err error) {
		return secretsOf(t, own[cluster], t.Context(), d.secure, inCluster(node("shop", "web", "10.244.0.1"), cluster), "kubernetes://site")
	}
	eventually(t, patience, func() error {
		if sent, removed, err := has("west"); err != nil || !slices.Equal(sent, []string{"kubernetes://site"}) {
			return fmt.Errorf("the gateway of west: sent %v, removed %v, %v", sent, removed, err)
		}
		return nil
	})
	if sent, removed, err := has("Kubernetes"); err != nil || len(sent) != 0 || len(removed) != 1 {
		t.Errorf("the gateway of the config cluster: sent %v, removed %v, %v", sent, removed, err)
	}

	west.Kubectl(t, "", "-n", "shop", "delete", "pod", "web-1", "--grace-period=0", "--force")
	first := tokens["west"]
	tokens["west"] = webToken(t, west)
	labels := 0
	eventually(t, 2*patience, func() error {
		for _, c := range clusters { // watches say something, so that the leader knows up to when it has read: else that is once a minute
			labels++
			for _, what := range []string{"pod/web-1", "serviceaccount/web", "namespace/shop"} {
				c.Kubectl(t, "", "-n", "shop", "label", "--overwrite", what, fmt.Sprintf("seen=t%d", labels))
			}
		}
		if _, err := with("west", first); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "a new object has its name") {
			return fmt.Errorf("the token of a Pod of west that was deleted and made again: %v", err)
		}
		return nil
	})
	pair, err := with("west", tokens["west"])
	if err != nil {
		t.Errorf("the token of its successor: %v", err)
	}
	shown := conf.Clone()
	shown.Certificates = []tls.Certificate{pair}
	own["west"] = credentials.NewTLS(shown)

	west.KillAPIServer()
	if _, err := with("west", tokens["west"]); err != nil {
		t.Errorf("while the API server of west is away: %v", err)
	}
	swapped(t, d, conf, tokens, own, "west")
	withoutItsSecret(t, home, d, conf, tokens)
}
