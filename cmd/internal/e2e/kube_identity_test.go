//go:build kube

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
)

// Tokens of Kubernetes are verified without a flag about their issuer. A Pod that was deleted and created again under
// its name has a token that is accepted. Its predecessor's token is refused by the CA and by xDS, although it has not
// expired and was accepted before; so is the certificate that was issued for it. The mesh's CA is the one that
// cert-manager keeps in the Secret cacerts; istiod's own beside it is ignored. Namespaces get the mesh's roots. All of
// this works while the API server is away, too.
// Promise: security-workloads.md#tokens
func TestKubeDeletedPods(t *testing.T) {
	parallel(t)
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	kubeconfig := rights.Documented(t, c)
	c.Kubectl(t, "", "create", "namespace", "shop")
	c.Kubectl(t, "", "create", "serviceaccount", "web", "-n", "shop")
	pod := func(address string) (token string) {
		c.Kubectl(t, "{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop}, spec: {serviceAccountName: web, containers: [{name: app, image: app}]}}", "apply", "-f", "-")
		c.Kubectl(t, "", "-n", "shop", "patch", "pod", "web-1", "--subresource=status", "-p",
			fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %[1]q}], "conditions": [{"type": "Ready", "status": "True"}]}}`, address))
		return strings.TrimSpace(c.Kubectl(t, "", "create", "token", "web", "-n", "shop", "--audience=istio-ca", "--bound-object-kind=Pod", "--bound-object-name=web-1"))
	}
	first := pod("10.244.0.1")
	user, istiod := newAuthority(t), newAuthority(t)
	for name, secret := range map[string][]string{
		"cacerts":         {"tls.crt=" + user.file("ca.crt"), "tls.key=" + user.file("ca.key"), "ca.crt=" + user.file("ca.crt")},
		"istio-ca-secret": {"ca-cert.pem=" + istiod.file("ca.crt"), "ca-key.pem=" + istiod.file("ca.key")},
	} {
		args := []string{"-n", "istio-system", "create", "secret", "generic", name}
		for _, file := range secret {
			args = append(args, "--from-file="+file)
		}
		c.Kubectl(t, "", args...)
	}
	data := t.TempDir()
	d := start(t, "--kubeconfig", kubeconfig, "--data-dir", data)
	roots := x509.NewCertPool()
	eventually(t, patience, func() error {
		text, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
		roots.AppendCertsFromPEM(text)
		return err
	})
	eventually(t, patience, func() error { // istio-ca-root-cert, with the documented rights
		want, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
		if err != nil {
			return err
		}
		got := c.Kubectl(t, "", "-n", "shop", "get", "configmap", "-l", "istio.io/config=true", "-o", `jsonpath={.items[?(@.metadata.name=="istio-ca-root-cert")].data.root-cert\.pem}`)
		if strings.TrimSpace(got) != strings.TrimSpace(string(want)) {
			page, err := get(d.http, "/debug/problems")
			return fmt.Errorf("istio-ca-root-cert has %q, want %q (problems: %s, %v)", got, want, page, err)
		}
		return nil
	})
	conf := &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"}
	with := func(token string) error {
		_, _, err := signed(bearer(t.Context(), token), t, d.secure, conf)
		return err
	}
	own := conf.Clone()
	eventually(t, patience, func() error {
		pair, _, err := signed(bearer(t.Context(), first), t, d.secure, conf)
		if own.Certificates = []tls.Certificate{pair}; err != nil {
			return err
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil || leaf.CheckSignatureFrom(user.cert) != nil {
			t.Errorf("it was not signed by the CA in the Secret cacerts: %v", err)
		}
		return nil
	})
	xds := func() error {
		_, err := everythingAs(t.Context(), credentials.NewTLS(own), d.secure, node("shop", "web", "10.244.0.1"))
		return err
	}
	eventually(t, patience, xds)

	c.Kubectl(t, "", "-n", "shop", "delete", "pod", "web-1", "--grace-period=0", "--force")
	second := pod("10.244.0.2")
	labels := 0
	refused := func(ask func() error) func() error {
		return func() error {
			// A change makes the watches report, so that the leader knows its read time; otherwise it knows it once a minute.
			labels++
			for _, what := range []string{"pod/web-1", "serviceaccount/web", "namespace/shop"} {
				c.Kubectl(t, "", "-n", "shop", "label", "--overwrite", what, fmt.Sprintf("seen=t%d", labels))
			}
			if err := ask(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "a new object has its name") {
				return fmt.Errorf("the deleted Pod: %v", err)
			}
			return nil
		}
	}
	eventually(t, 2*patience, refused(func() error { return with(first) }))
	eventually(t, patience, refused(xds))
	if err := with(second); err != nil {
		t.Errorf("the Pod that was made again: %v", err)
	}
	c.KillAPIServer()
	for name, ask := range map[string]func() error{"token": func() error { return with(first) }, "certificate": xds} {
		if err := ask(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s of the deleted Pod, while the API server is away: %v", name, err)
		}
	}
	if err := with(second); err != nil {
		t.Errorf("while the API server is away: %v", err)
	}
}
