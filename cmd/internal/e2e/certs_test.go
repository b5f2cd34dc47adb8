package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is a CA of a test, with files of its certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes a CA; its certificate is in the file ca.
func newAuthority(t testing.TB) *authority {
	t.Helper()
	return newAuthorityIn(t, t.TempDir())
}

// newAuthorityIn works like newAuthority, with its files in a folder that outlives the test.
func newAuthorityIn(t testing.TB, dir string) *authority {
	t.Helper()
	a := &authority{dir: dir}
	a.cert, a.key = a.sign(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "test CA"}})
	return a
}

// file returns the path of a file: ca, NAME.crt or NAME.key.
func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.crt and NAME.key: a certificate for 127.0.0.1, with a SPIFFE identity unless that is empty.
func (a *authority) issue(t testing.TB, name, identity string) {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if identity != "" {
		uri, err := url.Parse(identity)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{uri}
	}
	a.sign(t, name, template)
}

func (a *authority) sign(t testing.TB, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(12*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: raw}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(a.file(name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// client returns the TLS configuration of a client that trusts this CA, with the certificate of that name unless it is
// empty.
func (a *authority) client(t testing.TB, name string) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	conf := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.file(name+".crt"), a.file(name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf
}
