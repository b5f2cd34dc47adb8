package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// 700 silent connections do not prevent clients from getting a certificate, neither from the same address nor from
// another one. Most of the connections are closed, and the metrics report why. In this test --shared-sources does not
// exempt the addresses of this machine.
// Promise: security-connections.md#places-and-time
func TestSilentConnectionsLockNobodyOut(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	d := start(t, "--config-dir", folder(t), "--data-dir", data, "--shared-sources", "192.0.2.0/24")
	eventually(t, patience, d.ready)
	roots := x509.NewCertPool()
	eventually(t, patience, func() error {
		text, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
		roots.AppendCertsFromPEM(text)
		return err
	})
	conf, mine := &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"}, token(t, data, "shop", "client")
	for _, from := range []string{"127.0.0.2", "127.0.0.1"} { // the second is good clients' too
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
		for range 700 {
			c, err := dialer.DialContext(t.Context(), "tcp", d.secure)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		began := time.Now()
		if _, _, err := signed(bearer(t.Context(), mine), t, d.secure, conf); err != nil {
			t.Error(err)
		}
		t.Logf("a certificate in %v, with 700 silent connections of %s", time.Since(began), from)
	}
	if _, _, err := signed(t.Context(), t, d.secure, conf); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a credential: %v", err)
	}
	if n := d.mustValue(t, `navarch_unauthenticated_refused_total{reason="displaced"}`); n < 1000 {
		t.Errorf("%v connections were closed for others, want more than a thousand", n)
	}
}
