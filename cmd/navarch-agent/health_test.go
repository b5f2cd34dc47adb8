package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"navarch.io/navarch/store/loopback"
)

// A machine's agent reports its application's health, by the probe in the mesh.yaml of `navarchctl vm configure`: first
// healthy, then unhealthy with the reason. It reports again to a control plane that was away.
func TestAgentSaysHowTheApplicationIs(t *testing.T) {
	var broken atomic.Bool
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, "no database", http.StatusServiceUnavailable)
		}
	}))
	defer app.Close()
	_, port, err := net.SplitHostPort(app.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	mesh := filepath.Join(t.TempDir(), "mesh.yaml")
	text := fmt.Sprintf("defaultConfig:\n  readinessProbe: {httpGet: {path: /health, port: %s}, periodSeconds: 1, failureThreshold: 2}\n", port)
	if err := os.WriteFile(mesh, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFakeADS(t, loopback.For(t), app.Listener.Addr().String())
	addr, server := f.start(t, loopback.For(t))
	startAgent(t, addr, "--xds-plaintext", "--mesh-config", mesh)
	for { // earlier reports are about Envoy, which has no configuration yet
		if got := f.next(t, healthURL).request; got.ErrorDetail == nil {
			break
		}
	}
	broken.Store(true)
	wrong := f.next(t, healthURL).request.ErrorDetail.GetMessage()
	if !strings.Contains(wrong, "503") {
		t.Errorf("said %q", wrong)
	}
	server.Stop()
	f.start(t, addr)
	if again := f.next(t, healthURL).request.ErrorDetail.GetMessage(); again != wrong {
		t.Errorf("to the control plane that came back it said %q", again)
	}
	broken.Store(false)
	if got := f.next(t, healthURL).request; got.ErrorDetail != nil {
		t.Errorf("said %v", got.ErrorDetail)
	}
}
