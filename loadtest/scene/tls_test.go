package scene

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"navarch.io/navarch/loadtest/report"
)

type reportScenario = report.Scenario

// shakeHands has a client connect to a server with the CA's server certificate, which verifies the client's.
func shakeHands(t *testing.T, dir string, client *tls.Config, want string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, fileServer), filepath.Join(dir, fileServerKey))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, fileRoot))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(raw)
	one, other := net.Pipe()
	server := tls.Server(one, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	done := make(chan error, 1)
	go func() { done <- tls.Client(other, client).HandshakeContext(t.Context()) }()
	if err := server.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := server.ConnectionState().PeerCertificates[0].URIs[0].String(); got != want {
		t.Errorf("the client is %s, want %s", got, want)
	}
}
