// Package apiservertest simulates a Kubernetes API server in tests. With it, tests can produce faults and responses
// that a real API server does not produce on demand.
//
// Owns: a server on loopback, until the test ends.
// Reads: the clients' requests.
// Never: used outside tests.
package apiservertest

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"navarch.io/navarch/store/apiserver"
)

// Play returns a client of a simulated API server. Each request of the client has the bearer token "our-token". The
// argument handler makes the responses, perhaps in several goroutines at once. The server is closed at the end of the
// test. If the setup fails, the test ends with a failure.
func Play(t testing.TB, handler http.HandlerFunc) *apiserver.Client {
	t.Helper()
	api, err := apiserver.New(Kubeconfig(t, handler))
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// Kubeconfig returns the path of a kubeconfig for a simulated API server, with the bearer token "our-token". The
// argument handler makes the responses, perhaps in several goroutines at once. At the end of the test, the server is
// closed and the file is removed. If the setup fails, the test ends with a failure.
func Kubeconfig(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "x", "user": {"token": "our-token"}}]}`,
		server.URL, base64.StdEncoding.EncodeToString(ca))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
