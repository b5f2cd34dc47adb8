package scene

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/loadtest/report"
)

type reportScenario = report.Scenario

// shakeHands connects a client to a server that has the CA's server certificate and verifies the client's.
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

// On each connection a proxy accepts only a server whose chain it has verified: never one of another CA, or with
// another name.
func TestProxiesVerifyTheServer(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := errors.Join(makeCA(dir), makeCA(other)); err != nil {
		t.Fatal(err)
	}
	config := func(from, name string) *tls.Config {
		raw, err := os.ReadFile(filepath.Join(from, fileRoot))
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(raw)
		return asEnvoy(pool, name)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, fileServer), filepath.Join(dir, fileServerKey))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		client *tls.Config
		want   string
	}{
		"its own": {config(dir, serverName), ""}, "another CA": {config(other, serverName), "unknown authority"}, "another name": {config(dir, "example.com"), "example.com"},
	} {
		for range 2 {
			one, two := net.Pipe()
			var curve tls.CurveID
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer one.Close()
				server := tls.Server(one, &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true})
				_ = server.HandshakeContext(t.Context()) // the client's error decides
				curve = server.ConnectionState().CurveID
			}()
			err := tls.Client(two, c.client).HandshakeContext(t.Context())
			<-done
			switch {
			case c.want == "" && (err != nil || curve != tls.X25519):
				t.Errorf("%s: %v, key exchange %v", name, err, curve)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
	}
}
