package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// review requests the validation of a VirtualService to a host without a service; only its gateway may be wrong.
func review(t *testing.T, d *daemon, conf *tls.Config, gateway string) (allowed bool, said string) {
	t.Helper()
	object := fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "v", "namespace": "shop"}, "spec": {"hosts": ["a.example"], "gateways": [%q], "http": [{"route": [{"destination": {"host": "nobody"}}]}]}}`, gateway)
	text := `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "kind": {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"}, "name": "v", "namespace": "shop", "operation": "CREATE", "object": ` + object + `}}`
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf}}
	defer client.CloseIdleConnections()
	answer, err := client.Post("https://"+d.https+"/validate", "application/json", bytes.NewBufferString(text))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var got struct {
		Response struct {
			Allowed  bool
			Warnings []string
			Status   struct{ Message string }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", answer.Status, err)
	}
	return got.Response.Allowed, strings.Join(append(got.Response.Warnings, got.Response.Status.Message), "; ")
}

// A process with role admit alone runs without etcd and without a key encryption key. A replica with role ca signs its
// serving certificate, to its own identity, for the token of a named service account, and refuses every other account.
// Without knowledge of the mesh's hosts it warns of no unknown host. Its pages answer.
// Promise: security-keys.md#the-power-of-each-key
func TestAdmitAlone(t *testing.T) {
	parallel(t)
	s := newSealable(t)
	ca := s.start("--control-plane-accounts=istiod-admit")
	eventually(t, patience, serves(t, ca, 1))
	roots := s.trust()
	alone := func(account string) *daemon {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(token(t, s.data, "istio-system", account)), 0o600); err != nil {
			t.Fatal(err)
		}
		return start(t, "--roles=admit", "--ca-peers", ca.secure, "--peer-roots", roots, "--token-file", file)
	}
	own, other := alone("istiod-admit"), alone("web")
	eventually(t, patience, own.ready)
	conn, err := tls.Dial("tcp", own.https, s.tls())
	if err != nil {
		t.Fatal(err)
	}
	leaf := conn.ConnectionState().PeerCertificates[0]
	conn.Close()
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://cluster.local/ns/istio-system/sa/istiod-admit" {
		t.Errorf("it presents the identities %v", leaf.URIs)
	}
	if allowed, said := review(t, own, s.tls(), "shop/front"); !allowed || said != "" {
		t.Errorf("a good object: allowed %v, %q", allowed, said)
	}
	if allowed, said := review(t, own, s.tls(), "a/b/c"); allowed || !strings.Contains(said, `spec.gateways[0]: "a/b/c" is no gateway`) {
		t.Errorf("a wrong object: allowed %v, %q", allowed, said)
	}
	for _, page := range []string{"/version", "/debug/problems", "/debug/removals", "/debug/clusterz", "/debug/syncz"} {
		if _, err := get(own.monitoring, page); err != nil {
			t.Error(err)
		}
	}
	eventually(t, patience, func() error {
		if err := other.ready(); err == nil || !strings.Contains(err.Error(), "check the token") {
			return errors.Join(errors.New("another account's process"), err)
		}
		return nil
	})
	ca.kill()
	if allowed, said := review(t, own, s.tls(), "shop/front"); !allowed {
		t.Errorf("without a control plane: %q", said)
	}
}
