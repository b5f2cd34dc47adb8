package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"regexp"
	"strings"
	"time"
)

// westKeys returns the manifest of the Secret west, with new keys, a certificate, a token and a kubeconfig for the API
// server of the second cluster. root verifies that certificate.
func westKeys() (manifest string, root []byte, err error) {
	private := map[string][]byte{}
	var serving *ecdsa.PrivateKey
	for _, name := range []string{"sa.key", "tls.key"} {
		if serving, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return "", nil, err
		}
		der, err := x509.MarshalECPrivateKey(serving)
		if err != nil {
			return "", nil, err
		}
		private[name] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "west"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 1),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"apiserver.west.svc", "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &serving.PublicKey, serving)
	if err != nil {
		return "", nil, err
	}
	root = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	token := rand.Text()
	private["tls.crt"], private["tokens.csv"] = root, fmt.Appendf(nil, "%s,admin,1,\"system:masters\"\n", token)
	private["kubeconfig"] = fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: west, contexts: [{name: west, context: {cluster: west, user: admin}}],
  clusters: [{name: west, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: %s}}], users: [{name: admin, user: {token: %s}}]}
`, base64.StdEncoding.EncodeToString(root), token)
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: west}\n---\n" + secret("west", "west", private), root, nil
}

// inWest runs a program in the Pod of the second cluster's API server, as the administrator of that cluster.
func (d *demo) inWest(ctx context.Context, stdin, program string, args ...string) (string, error) {
	return d.cluster.Kubectl(ctx, stdin,
		append([]string{"exec", "-i", "-n", "west", "apiserver", "--", program, "--kubeconfig=/etc/west/kubeconfig"}, args...)...)
}

// startWest starts the second cluster, whose Service ratings has one endpoint.
func (d *demo) startWest(ctx context.Context) error {
	keys, root, err := westKeys()
	if err != nil {
		return err
	}
	if err := d.apply(ctx, keys, manifest("west")); err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "wait", "-n", "west", "--for=condition=Ready", "pod/apiserver", "pod/ratings", "--timeout=90s"); err != nil {
		return err
	}
	address, err := d.kubectl(ctx, "get", "pod", "-n", "west", "ratings", "-o", "jsonpath={.status.podIP}")
	if err != nil {
		return err
	}
	if _, err := d.inWest(ctx, manifest("west-objects", "THE-ADDRESS", address), "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	token, err := d.inWest(ctx, "", "kubectl", "create", "token", "istio-reader-service-account", "-n", "istio-system")
	if err != nil {
		return err
	}
	encode := base64.StdEncoding.EncodeToString
	_, err = d.inWest(ctx, manifest("west-token", "THE-TOKEN", encode([]byte(strings.TrimSpace(token))), "THE-ROOT", encode(root)),
		"kubectl", "apply", "-f", "-")
	return err
}

// addCluster adds the second cluster by the Secret that navarchctl prints, and checks that all of its endpoints are
// called.
func (d *demo) addCluster(ctx context.Context) (string, error) {
	began := time.Now()
	if err := d.startWest(ctx); err != nil {
		return "", err
	}
	started := since(began)
	secret, err := d.inWest(ctx, "", "navarchctl", "create-remote-secret", "--name=west", "--server=https://apiserver.west.svc:6443")
	if err != nil {
		return "", err
	}
	before, err := d.ratings(ctx)
	if err != nil {
		return "", err
	}
	began = time.Now()
	if err := d.apply(ctx, secret); err != nil {
		return "", err
	}
	if err := d.await(ctx, minute, func(ctx context.Context) error { return d.ratingsAre(ctx, before+1) }); err != nil {
		return "", err
	}
	took := since(began)
	err = d.await(ctx, minute, func(ctx context.Context) error {
		r, err := d.report(ctx)
		if err == nil && r.Workloads["ratings"].Last["west"].IsZero() {
			err = errors.New("the endpoint of the second cluster has not answered yet")
		}
		return err
	})
	return fmt.Sprintf("its API server is ready after %s; with its Secret ratings has %d endpoints instead of %d after %s, and "+
		"both clusters' answer", started, before+1, before, took), err
}

// heldID matches the line of `navarchctl removals list` before the names of a removal.
var heldID = regexp.MustCompile(`(?m)^([0-9a-f]{10}):$`)

// removals runs navarchctl removals in one Pod of the control plane after the other until it succeeds, because only the
// leader accepts removals.
func (d *demo) removals(ctx context.Context, stdin string, args ...string) (text string, err error) {
	pods, err := d.kubectl(ctx, "get", "pods", "-n", "istio-system", "-l", "app.kubernetes.io/name=navarchd", "-o", "name")
	if err != nil {
		return "", err
	}
	for _, pod := range strings.Fields(pods) {
		if text, err = d.cluster.Kubectl(ctx, stdin,
			append([]string{"exec", "-i", "-n", "istio-system", pod, "--", "navarchctl", "removals", "--server=127.0.0.1:8080"},
				args...)...); err == nil {
			return text, nil
		}
	}
	return "", err
}

// removeCluster deletes the Secret, accepts the removal as an operator, and checks that only the first cluster's
// endpoints are left.
func (d *demo) removeCluster(ctx context.Context) (string, error) {
	before, err := d.ratings(ctx)
	if err != nil {
		return "", err
	}
	if _, err := d.kubectl(ctx, "delete", "secret", "-n", "istio-system", "istio-remote-secret-west"); err != nil {
		return "", err
	}
	var held []string
	err = d.await(ctx, minute, func(ctx context.Context) error {
		text, err := d.removals(ctx, "", "list")
		if held = heldID.FindStringSubmatch(text); err == nil && held == nil {
			err = fmt.Errorf("nothing is held: %s", text)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if err := d.ratingsAre(ctx, before); err != nil {
		return "", fmt.Errorf("while the removal is held: %w", err)
	}
	began := time.Now()
	token, err := d.kubectl(ctx, "create", "token", "-n", "istio-system", "navarch-operator")
	if err != nil {
		return "", err
	}
	if _, err := d.removals(ctx, token, "accept", held[1], "--token-file=-"); err != nil {
		return "", err
	}
	err = d.await(ctx, minute, func(ctx context.Context) error { return d.ratingsAre(ctx, before-1) })
	return fmt.Sprintf("its endpoint stays while the removal is held; %s after an operator has accepted it ratings has %d endpoints",
		since(began), before-1), err
}

// ratings returns the number of endpoints of the Service ratings in the client's Envoy.
func (d *demo) ratings(ctx context.Context) (int, error) {
	text, err := d.kubectl(ctx, "exec", "-n", "shop", "client", "-c", "istio-proxy", "--", "navarchctl",
		"proxy-config", "endpoints", "--envoy=127.0.0.1:15000", "--cluster=outbound|8080||ratings.shop.svc.cluster.local")
	return strings.Count(text, "outbound|8080||ratings.shop.svc.cluster.local"), err
}

func (d *demo) ratingsAre(ctx context.Context, want int) error {
	n, err := d.ratings(ctx)
	if err == nil && n != want {
		err = fmt.Errorf("ratings has %d endpoints, want %d", n, want)
	}
	return err
}
