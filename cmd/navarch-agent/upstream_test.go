package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"navarch.io/navarch/store/loopback"
)

// serverCert makes a self-signed certificate for name and writes its PEM to file.
func serverCert(t *testing.T, name, file string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Over TLS the token is sent. The root is read again for each connection, so an agent that was started too early
// recovers by itself.
func TestTLSWithToken(t *testing.T) {
	dir := t.TempDir()
	root, token := filepath.Join(dir, "root.pem"), filepath.Join(dir, "token")
	serverCert(t, "istiod.istio-system.svc", root) // a root, but not the server's
	cert := serverCert(t, "istiod.istio-system.svc", filepath.Join(dir, "right.pem"))
	if err := os.WriteFile(token, []byte("jwt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ads := newFakeADS(t, loopback.For(t), "127.0.0.1:1")
	addr, _ := ads.start(t, "127.0.0.1:0", grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	p := startAgent(t, addr, "--xds-root-cert", root, "--xds-server-name", "istiod.istio-system.svc", "--token-file", token)
	page := p.until("refused", func(d debugPage) bool { return d.XDS.Failures > 0 })
	if !strings.Contains(page.XDS.LastError, "certificate") {
		t.Errorf("last error: %s", page.XDS.LastError)
	}
	right, err := os.ReadFile(filepath.Join(dir, "right.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root, right, 0o600); err != nil {
		t.Fatal(err)
	}
	if h := ads.next(t, cdsType).headers; len(h.Get("authorization")) != 1 || h.Get("authorization")[0] != "Bearer jwt" {
		t.Errorf("headers over TLS: %v", h)
	}
}

func TestUpstreamFaults(t *testing.T) {
	dir := t.TempDir()
	empty, token := filepath.Join(dir, "empty"), filepath.Join(dir, "token")
	for _, f := range []string{empty, token} {
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, root := range []string{filepath.Join(dir, "none"), empty} {
		if _, err := (&upstream{target: "h:1", rootCert: root}).credentials(); err == nil || !strings.Contains(err.Error(), root) {
			t.Errorf("root %s: %v", root, err)
		}
	}
	if md, err := (&upstream{plaintext: true, token: token}).metadata(); err != nil || md.Get("authorization") != nil {
		t.Errorf("a token in plaintext: %v, %v", md, err)
	}
	if md, err := (&upstream{token: filepath.Join(dir, "none")}).metadata(); err != nil || len(md) != 0 {
		t.Errorf("without a token: %v, %v", md, err)
	}
}
