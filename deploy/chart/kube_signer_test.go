//go:build kube

package chart

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/loop"
)

// authority is a CA that is not Navarch's.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	root []byte // cert, PEM
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encodeKey(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{Subject: pkix.Name{Organization: []string{"cluster.local"}}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	a.root = a.sign(t, template, template, &a.key.PublicKey)
	block, _ := pem.Decode(a.root)
	var err error
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return a
}

// certify returns a certificate as PEM, signed with the key of `by`. It is valid for part of an hour; a root for ten
// years.
func (a *authority) certify(of, by *x509.Certificate, key any) ([]byte, error) {
	of.SerialNumber, of.NotBefore, of.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Minute), time.Now().Add(50*time.Minute)
	if of.IsCA {
		of.NotAfter = of.NotAfter.AddDate(10, 0, 0)
	}
	der, err := x509.CreateCertificate(rand.Reader, of, by, key, a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

func (a *authority) sign(t *testing.T, of, by *x509.Certificate, key any) []byte {
	signed, err := a.certify(of, by, key)
	if err != nil {
		t.Error(err)
	}
	return signed
}

// workload returns a certificate in the form that a CA signs for a workload.
func workload(ids []*url.URL) *x509.Certificate {
	return &x509.Certificate{URIs: ids, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
}

// signs runs the Kubernetes signer example.com/mesh: it signs approved requests. signed returns their identities.
func (a *authority) signs(i *installation) (signed func() string) {
	requests := i.client.CertificatesV1().CertificateSigningRequests()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var mu sync.Mutex
	var all []string
	running.Go(func() {
		for loop.Pause(ctx, 50*time.Millisecond) == nil {
			list, err := requests.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, r := range list.Items {
				if r.Spec.SignerName != "example.com/mesh" || len(r.Status.Certificate) > 0 || len(r.Status.Conditions) != 1 || r.Status.Conditions[0].Type != certificatesv1.CertificateApproved {
					continue
				}
				block, _ := pem.Decode(r.Spec.Request)
				asked, err := x509.ParseCertificateRequest(block.Bytes)
				if err != nil {
					i.t.Error(err)
					continue
				}
				r.Status.Certificate = a.sign(i.t, workload(asked.URIs), a.cert, asked.PublicKey)
				// After a failure the next list has it again.
				if _, err := requests.UpdateStatus(ctx, &r, metav1.UpdateOptions{}); err == nil {
					mu.Lock()
					all = append(all, asked.URIs[0].String())
					mu.Unlock()
				}
			}
		}
	})
	i.t.Cleanup(func() { cancel(); running.Wait() })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, " ")
	}
}

// serving creates a Secret with a server's certificate, and the root that issued it.
func (i *installation) serving(ca *authority, namespace, name, host string) {
	t, key := i.t, newKey(i.t)
	serving := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"tls.key": encodeKey(t, key), "ca.crt": ca.root,
		"tls.crt": ca.sign(t, &x509.Certificate{DNSNames: []string{host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca.cert, &key.PublicKey)}}
	if _, err := i.client.CoreV1().Secrets(namespace).Create(t.Context(), serving, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// file writes the root certificate into a file, and returns its path.
func (a *authority) file(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, a.root, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// signers installs a third mesh, whose certificates are signed by a signer of Kubernetes (value issuer): an injected
// Pod gets a certificate, and joins.
func (i *installation) signers() {
	t, ca := i.t, newAuthority(i.t)
	if os.Geteuid() != 0 {
		t.Log("not root: sidecars, which run as a user of their own, are left out")
		return
	}
	i.MustKubectl(t, `{apiVersion: v1, kind: Namespace, metadata: {name: signed, labels: {mesh: signed, pod-security.kubernetes.io/enforce: restricted}}}`, "apply", "-f", "-")
	i.serving(ca, "signed", "istiod-serving", "istiod-signed.signed.svc")
	signers, err := json.Marshal(map[string]string{"example.com/mesh": string(ca.root)})
	if err != nil {
		t.Fatal(err)
	}
	signed := ca.signs(i)
	i.runIn("signed", "install", "signed", i.helm.Dir, "-f", "testdata/signed.yaml",
		"--set-json", "issuer.signers="+string(signers), "--set-file", "issuer.servingRoots="+ca.file(t), "--wait", "--timeout=300s")
	i.MustKubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: signed-shop, labels: {mesh: signed, istio.io/rev: signed}}}", "apply", "-f", "-")
	i.trusts("signed-shop", string(ca.root))
	i.MustKubectl(t, webIn(t, "signed-shop"), "apply", "-f", "-")
	if out, err := i.Kubectl(t.Context(), "", "wait", "-n", "signed-shop",
		"--for=condition=Ready", "pod/web", "--timeout=180s"); err != nil {
		logs, _ := i.Kubectl(t.Context(), "", "logs", "-n", "signed-shop", "web", "--all-containers", "--tail=30")
		t.Fatalf("%v %s\n%s", err, out, logs)
	}
	if got := signed(); got != "spiffe://cluster.local/ns/signed-shop/sa/default" {
		t.Errorf("the signer has signed for %q", got)
	}
	i.trusts("signed", string(ca.root))
	if wrong := i.wrong("signed", "signed", "the CA takes the token (the signer was not asked), and clusters were sent"); wrong != "" {
		t.Errorf("navarchctl check: %s", wrong)
	}
	i.at("the Pod has its certificate of the signer")
}
