//go:build !race

package plan

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"navarch.io/navarch/store/loopback"
)

// selfSigned writes a certificate, which is its own authority, and its key to files.
func selfSigned(t *testing.T, name string) (cert, key string, client tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, DNSNames: []string{name}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: raw}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: private}
}

// A host that one server serves with a client certificate is not reached by a connection to another server of the port,
// whatever hosts that one has. A host of another server without that demand is answered 421, unless the server's own
// virtual hosts have it.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestMutualHostsAtGateways(t *testing.T) {
	closed, leadsToClosed := backend(t, "closed", "10.1.0.1")
	open, leadsToOpen := backend(t, "open", "10.1.0.2")
	cert, key, client := selfSigned(t, "gw.test")
	all, mixed, beside := loopback.PortFor(t), loopback.PortFor(t), loopback.PortFor(t)
	server := func(port int, name, mode, hosts string) string {
		protocol, ends := "HTTP", ""
		if mode != "" {
			protocol, ends = "HTTPS", fmt.Sprintf(", tls: {mode: %s, serverCertificate: %s, privateKey: %s, caCertificates: %s}", mode, cert, key, cert)
		}
		return fmt.Sprintf("{port: {number: %d, name: %s, protocol: %s}, bind: 127.0.0.1, hosts: [%s]%s}, ", port, name, protocol, hosts, ends)
	}
	startGateway(t, routerOf("edge", "gw"),
		server(all, "a", "SIMPLE", "open.test")+server(all, "b", "MUTUAL", "closed.test")+server(all, "c", "MUTUAL", "'*.wild.test'")+
			server(all, "d", "SIMPLE", "'*'")+server(mixed, "e", "MUTUAL", "closed.test, '*.wild.test'")+server(mixed, "f", "", "'*'")+
			server(beside, "g", "MUTUAL", "'*', closed.test")+server(beside, "h", "SIMPLE", "'*.test'"),
		[]func([]byte) []byte{leadsToClosed, leadsToOpen}, append(append(closed, open...),
			leadsTo(t, "closed@1", "closed.test", "closed"), leadsTo(t, "wild@1", "*.wild.test", "closed"), leadsTo(t, "below@1", "x.wild.test", "closed"),
			leadsTo(t, "open@2", "open.test", "open"), leadsTo(t, "test@2", "*.test", "open"), leadsTo(t, "any@2", "*", "open"))...)

	dial := func(port int, sni, protocol string, certificates ...tls.Certificate) net.Conn {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{
			ServerName: sni, InsecureSkipVerify: true, NextProtos: []string{protocol}, Certificates: certificates})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for _, row := range []struct {
		sni, host, want string
		certificates    []tls.Certificate
	}{
		{"closed.test", "closed.test", "closed closed.test/", []tls.Certificate{client}},
		{"x.wild.test", "x.wild.test", "closed x.wild.test/", []tls.Certificate{client}},
		{"closed.test", "closed.test", "ended", nil},
		{"open.test", "open.test", "open open.test/", nil},
		{"open.test", "closed.test", "421", nil},
		{"open.test", "closed.test.", "404", nil},
		{"open.test", "x.wild.test", "421", nil},
		{"open.test", "elsewhere.test", "404", nil},
		{"elsewhere.test", "elsewhere.test", "open elsewhere.test/", nil},
		{"elsewhere.test", "closed.test", "421", nil},
		{"elsewhere.test", "CLOSED.test", "421", nil},
		{"elsewhere.test", "closed.test:443", "421", nil},
		{"elsewhere.test", "closed.test.", "421", nil},
		{"elsewhere.test", "closed.test:443:443", "421", nil}, // Envoy removes one port
		{"elsewhere.test", "x.wild.test", "421", nil},
		{"elsewhere.test", "y.wild.test", "421", nil},
		{"elsewhere.test", "y.wild.test.", "421", nil},
		{"elsewhere.test", "open.test", "open open.test/", nil}, // SIMPLE too, and served here
		{"closed.test", "open.test", "421", []tls.Certificate{client}},
		{"closed.test", "x.wild.test", "421", []tls.Certificate{client}},
	} {
		if got := ask(t, dial(all, row.sni, "http/1.1", row.certificates...), get("/", row.host)); got != row.want {
			t.Errorf("SNI %s, Host %s: %s, want %s", row.sni, row.host, got, row.want)
		}
		if got := ask2(t, dial(all, row.sni, "h2", row.certificates...), ":authority", row.host); got != row.want {
			t.Errorf("SNI %s, :authority %s: %s, want %s", row.sni, row.host, got, row.want)
		}
	}
	for _, row := range []struct { // closed.test is stated beside "*", and another server has the wildcard above it
		sni, host, want string
		certificates    []tls.Certificate
	}{
		{"closed.test", "closed.test", "ended", nil},
		{"closed.test", "closed.test", "closed closed.test/", []tls.Certificate{client}},
		{"open.test", "open.test", "open open.test/", nil},
		{"open.test", "closed.test", "421", nil},
	} {
		if got := ask(t, dial(beside, row.sni, "http/1.1", row.certificates...), get("/", row.host)); got != row.want {
			t.Errorf("SNI %s, Host %s, beside *: %s, want %s", row.sni, row.host, got, row.want)
		}
	}
	for host, want := range map[string]string{"closed.test": "421", "closed.test.": "421", "x.wild.test": "421", "y.wild.test": "421", "open.test": "open open.test/"} {
		if got := ask(t, dialPort(t, mixed), get("/", host)); got != want {
			t.Errorf("without TLS, Host %s: %s, want %s", host, got, want)
		}
	}
}
