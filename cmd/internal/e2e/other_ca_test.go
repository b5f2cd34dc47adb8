package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// With another CA (ENABLE_CA_SERVER=false) navarchd serves xDS to clients with a certificate of that CA. It issues no
// certificates, and creates no root.
// Promise: security-ca.md#roots-of-several-cas
func TestAnotherCASigns(t *testing.T) {
	parallel(t)
	ca, data := newAuthority(t), t.TempDir()
	ca.issue(t, "server", "")
	ca.issue(t, "client", "spiffe://cluster.local/ns/shop/sa/client")
	d := startProgram(t, navarchd(t), []string{"ENABLE_CA_SERVER=false"}, "--config-dir", folder(t), "--data-dir", data,
		"--tls-cert", ca.file("server.crt"), "--tls-key", ca.file("server.key"), "--tls-client-ca", ca.file("ca.crt"))
	eventually(t, patience, serves(t, d, 1))
	eventually(t, patience, func() error { _, err := get(d.http, "/ready"); return err })
	own := ca.client(t, "client")
	if _, err := everythingAs(t.Context(), credentials.NewTLS(own), d.secure, node("shop", "client", "10.1.9.9")); err != nil {
		t.Errorf("xDS with a certificate of the other CA: %v", err)
	}
	if _, err := everythingAs(t.Context(), credentials.NewTLS(ca.client(t, "")), d.secure, node("shop", "client", "10.1.9.9")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("xDS without one: %v", err)
	}
	if _, _, err := signed(t.Context(), t, d.secure, own); status.Code(err) != codes.Unimplemented {
		t.Errorf("it is asked for a certificate: %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "root-cert.pem")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has made a root: %v", err)
	}
}
