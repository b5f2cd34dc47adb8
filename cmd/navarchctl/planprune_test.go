package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// A plan of a running mesh prunes the objects of Istio's kinds that the API server has under the selector and that are
// not applied. The request to the replica has the number of deleted objects. Kinds that the API server does not serve
// add no objects.
func TestPruneOfARunningMesh(t *testing.T) {
	var selectors []string
	kubeconfig := apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/networking.istio.io":
			fmt.Fprint(w, `{"preferredVersion": {"version": "v1"}}`)
		case "/apis/networking.istio.io/v1":
			fmt.Fprint(w, `{"resources": [{"name": "virtualservices", "kind": "VirtualService", "namespaced": true}]}`)
		case "/apis/networking.istio.io/v1/virtualservices":
			selectors = append(selectors, r.URL.Query().Get("labelSelector"))
			fmt.Fprint(w, `{"apiVersion": "networking.istio.io/v1", "items": [
				{"metadata": {"name": "kept", "namespace": "shop", "labels": {"team": "a"}}},
				{"metadata": {"name": "old", "namespace": "shop", "labels": {"team": "a"}}}]}`)
		default:
			http.NotFound(w, r)
		}
	})
	var query, body string
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		query, body = r.URL.RawQuery, string(text)
		fmt.Fprintf(w, `{"schema": %q, "items": [{"schema": %q}]}`, fleetapi.Schema, preview.Schema)
	}))
	defer replica.Close()
	cmd := root()
	cmd.SetArgs([]string{"plan", "-f", "-", "--prune", "team=a", "--kubeconfig", kubeconfig, "--server", replica.URL})
	cmd.SetIn(strings.NewReader("{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: kept, namespace: shop}, spec: {}}"))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	put, removed, _ := strings.Cut(body, "\n---\n")
	if query != "removed=1" || !strings.Contains(put, `"kept"`) || !strings.Contains(removed, `"old"`) || strings.Contains(removed, `"kept"`) ||
		len(selectors) != 1 || selectors[0] != "team=a" {
		t.Errorf("?%s\n%s\nselectors %q", query, body, selectors)
	}
}
