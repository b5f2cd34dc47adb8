//go:build kube

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
)

const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// signsRequests runs a Kubernetes signer until the test ends: it signs approved requests for example.com/mesh without
// changes.
func (a *authority) signsRequests(t *testing.T, c *controlplane.ControlPlane) {
	t.Helper()
	api, err := apiserver.New(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for loop.Pause(ctx, 20*time.Millisecond) == nil {
			var all struct {
				Items []struct {
					Metadata struct{ Name string }
					Spec     struct {
						Request    []byte
						SignerName string
					}
					Status struct {
						Conditions  []struct{ Type string }
						Certificate []byte
					}
				}
			}
			if err := api.Do(ctx, http.MethodGet, requests, nil, &all); err != nil {
				continue
			}
			for _, r := range all.Items {
				if r.Spec.SignerName != "example.com/mesh" || len(r.Status.Certificate) > 0 || len(r.Status.Conditions) != 1 || r.Status.Conditions[0].Type != "Approved" {
					continue
				}
				var whole map[string]any
				if api.Do(ctx, http.MethodGet, requests+"/"+r.Metadata.Name, nil, &whole) == nil {
					whole["status"].(map[string]any)["certificate"] = a.signRequest(t, r.Spec.Request)
					// After a failure the next list has it again.
					_ = api.Do(ctx, http.MethodPut, requests+"/"+r.Metadata.Name+"/status", whole, nil)
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func (a *authority) signRequest(t *testing.T, text []byte) []byte {
	block, _ := pem.Decode(text)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Error(err)
		return nil
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), URIs: asked.URIs, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour)},
		a.cert, asked.PublicKey, a.key)
	if err != nil {
		t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// stockRequest requests a certificate as stock agents do: the CSR names the identity.
func stockRequest(ctx context.Context, t *testing.T, address string, conf *tls.Config, identity string) (tls.Certificate, []string, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := url.Parse(identity)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{Organization: []string{""}}, URIs: []*url.URL{id}}, key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &securityv1.IstioCertificateRequest{
		Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))})
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	block, _ := pem.Decode([]byte(res.CertChain[0]))
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}, res.CertChain, nil
}

// navarchd is the registration authority of a Kubernetes signer, with the documented rights and the signer's root in
// the mesh configuration. A workload with its token gets a certificate from the signer, and is served with it; no
// request object and no root is left behind. A CSR of another identity is refused, and while the mesh configuration has
// no root of the signer all requests are.
// Promise: security-ca.md#signers-of-kubernetes
func TestKubeRegistrationAuthority(t *testing.T) {
	parallel(t)
	c, ca, data := controlplane.Start(t, controlplane.Options{}), newAuthority(t), t.TempDir()
	kubeconfig := rights.Documented(t, c)
	rights.Grant(t, c, rights.OfSigners)
	c.Kubectl(t, "", "create", "namespace", "shop")
	c.Kubectl(t, webPod+"---\n"+ratings, "apply", "-f", "-")
	token := strings.TrimSpace(c.Kubectl(t, "", "create", "token", "web", "-n", "shop", "--audience=istio-ca"))
	ca.issue(t, "server", "")
	ca.signsRequests(t, c)
	d := startProgram(t, navarchd(t), []string{"EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API", "K8S_SIGNER=example.com/mesh"}, "--kubeconfig", kubeconfig, "--data-dir", data,
		"--tls-cert", ca.file("server.crt"), "--tls-key", ca.file("server.key"), "--tls-client-ca", ca.file("ca.crt"))
	eventually(t, patience, d.ready)
	const web = "spiffe://cluster.local/ns/shop/sa/web"
	ask := func(identity string) (tls.Certificate, []string, error) {
		return stockRequest(bearer(t.Context(), token), t, d.secure, ca.client(t, ""), identity)
	}
	eventually(t, patience, func() error {
		if _, _, err := ask(web); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no root of signer") {
			return fmt.Errorf("without a root: %v", err)
		}
		return nil
	})
	root, err := os.ReadFile(ca.file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	mesh := "caCertificates:\n- certSigners: [example.com/mesh]\n  pem: |\n    " + strings.ReplaceAll(strings.TrimSpace(string(root)), "\n", "\n    ") + "\n"
	c.Kubectl(t, "", "-n", "istio-system", "create", "configmap", "istio", "--from-literal=mesh="+mesh)
	var own tls.Certificate
	eventually(t, patience, func() error {
		pair, chain, err := ask(web)
		if own = pair; err == nil && (len(chain) != 2 || strings.TrimSpace(chain[1]) != strings.TrimSpace(string(root))) {
			t.Errorf("the answer is %q", chain)
		}
		return err
	})
	conf := ca.client(t, "")
	conf.Certificates = []tls.Certificate{own}
	eventually(t, patience, func() error {
		_, err := everythingAs(t.Context(), credentials.NewTLS(conf), d.secure, node("shop", "web", "10.244.0.1"))
		return err
	})
	if _, _, err := ask("spiffe://cluster.local/ns/shop/sa/admin"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("for another identity: %v", err)
	}
	if _, _, err := stockRequest(t.Context(), t, d.secure, conf, web); status.Code(err) != codes.Unauthenticated {
		t.Errorf("by that certificate alone: %v", err)
	}
	if left := strings.TrimSpace(c.Kubectl(t, "", "get", "csr", "-o", "name")); left != "" {
		t.Errorf("left behind: %s", left)
	}
	page, err := get(d.monitoring, "/metrics")
	if err != nil || !strings.Contains(page, `navarch_signer_requests_total{outcome="signed"}`) {
		t.Errorf("metrics: %v", err)
	}
}
