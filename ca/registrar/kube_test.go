//go:build kube

package registrar

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// signs plays a signer of Kubernetes until the test ends: it signs approved requests, and denies those of
// example.com/other.
func signs(t *testing.T, c *controlplane.ControlPlane, f *foreign) {
	t.Helper()
	api, err := apiserver.New(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		done := map[string]bool{}
		for loop.Pause(ctx, 20*time.Millisecond) == nil {
			var all struct{ Items []request }
			if err := api.Do(ctx, http.MethodGet, path, nil, &all); err != nil {
				continue
			}
			for _, r := range all.Items {
				if done[r.Metadata.UID] || len(r.Status.Conditions) == 0 || r.Status.Conditions[0].Type != "Approved" || !strings.HasPrefix(r.Spec.SignerName, "example.com/") {
					continue
				}
				if r.APIVersion, r.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"; r.Spec.SignerName == signerName {
					r.Status.Certificate = f.sign(t, r)
				} else {
					r.Status.Conditions = append(r.Status.Conditions, condition{Type: "Failed", Status: "True", Reason: "Policy", Message: "not by this one"})
				}
				if err := api.Do(ctx, http.MethodPut, path+"/"+r.Metadata.Name+"/status", r, nil); err == nil {
					done[r.Metadata.UID] = true
				} else if ctx.Err() == nil && !apiserver.IsStatus(err, http.StatusNotFound) && !apiserver.IsStatus(err, http.StatusConflict) {
					t.Errorf("the signer: %v", err)
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// With the documented rights a real API server accepts requests, their approval and their deletion; a signer that the
// test plays signs them. Requests for a signer outside of our rights are not approved, failures are reported, and no
// object is left.
// Promise: security-ca.md#signers-of-kubernetes
func TestKubeSigner(t *testing.T) {
	c, f, key := controlplane.Start(t, controlplane.Options{}), newForeign(t), newKey(t)
	kubeconfig := rights.Documented(t, c)
	rights.Grant(t, c, rights.OfSigners)
	api, err := apiserver.New(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	r := f.registrar(api)
	signs(t, c, f)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		got, err := ask(ctx, r, csr(t, key), "")
		if err == nil {
			good(t, got, key, f)
			break
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "403") {
			t.Fatal(err)
		}
		_ = loop.Pause(ctx, 20*time.Millisecond) // the API server does not report when a binding takes effect
	}
	if _, err := ask(ctx, r, csr(t, key), "other"); err == nil || !strings.Contains(err.Error(), "approve") || !strings.Contains(err.Error(), "403") {
		t.Errorf("a signer that is not in our rules: %v", err)
	}
	c.Kubectl(t, "", "patch", "clusterrole", "navarchd-signers", "--type=json", "-p", `[{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/other"], "verbs": ["approve"]}}]`)
	for {
		_, err := ask(ctx, r, csr(t, key), "other")
		if errors.Is(err, serve.ErrRefused) && strings.Contains(err.Error(), "not by this one") {
			break
		}
		if ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "403") {
			t.Fatalf("a signer that fails: %v", err)
		}
		_ = loop.Pause(ctx, 20*time.Millisecond)
	}
	if left := strings.TrimSpace(c.Kubectl(t, "", "get", "csr", "-o", "name")); left != "" {
		t.Errorf("left behind: %s", left)
	}
	c.KillAPIServer()
	if _, err := ask(ctx, r, csr(t, key), ""); err == nil {
		t.Error("a certificate without an API server")
	}
}
