package serving

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
)

// writePair writes a self-signed pair with a common name, and returns the certificate as DER.
func writePair(t *testing.T, cert, key string) []byte {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: n, NotAfter: time.Now().Add(time.Hour)},
		&x509.Certificate{SerialNumber: n}, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if path == "" {
			continue
		}
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return der
}

// An operator's pair is parsed once per change, and a partial change leaves the last valid pair in use.
func TestPairFiles(t *testing.T) {
	dir := t.TempDir()
	p := &pairFiles{cert: filepath.Join(dir, "c"), key: filepath.Join(dir, "k")}
	if _, err := p.pair(); err == nil {
		t.Fatal("files that are not there")
	}
	first := writePair(t, p.cert, p.key)
	a, err := p.pair()
	if err != nil || !bytes.Equal(a.Certificate[0], first) {
		t.Fatal(err)
	}
	if b, _ := p.pair(); b != a {
		t.Error("parsed again without a change")
	}
	writePair(t, p.cert, "") // without its key
	if b, err := p.pair(); err != nil || b != a {
		t.Errorf("half of a change: %v", err)
	}
	second := writePair(t, p.cert, p.key)
	if b, err := p.pair(); err != nil || !bytes.Equal(b.Certificate[0], second) {
		t.Errorf("after the change: %v", err)
	}
}

// Keys are exchanged by the curves that Envoy offers, and not by those that cost a server many times as much.
// Promise: security-connections.md#handshakes
func TestCurves(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	writePair(t, cert, key)
	server, err := ByFiles(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	held := (&Held{}).Config()
	held.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
	for curve, want := range map[tls.CurveID]bool{tls.X25519MLKEM768: true, tls.X25519: true, tls.CurveP256: true, tls.CurveP384: false, tls.CurveP521: false} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			if version == tls.VersionTLS12 && curve == tls.X25519MLKEM768 {
				continue // TLS 1.2 does not have it
			}
			for name, conf := range map[string]*tls.Config{"xDS": server, "webhooks": held} {
				near, far := net.Pipe()
				go func() { _ = tls.Server(far, conf).Handshake(); far.Close() }()
				err := tls.Client(near, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{curve}, MaxVersion: version, NextProtos: conf.NextProtos}).Handshake()
				if near.Close(); (err == nil) != want {
					t.Errorf("%s, %v, %s: %v, want it taken: %v", name, curve, tls.VersionName(version), err, want)
				}
			}
		}
	}
}

// Handshakes under one state of the keyring share one configuration; another state, another one.
func TestOneConfigurationPerState(t *testing.T) {
	root, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New([]string{"localhost"}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	one, two := &keyring.State{Active: root, Bundle: root.Roots}, &keyring.State{Active: root, Bundle: root.Roots}
	a, err := s.Under(one)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := s.Under(one); a != b {
		t.Error("two configurations under one state: work for each handshake")
	}
	b, err := s.Under(two)
	if err != nil || a == b {
		t.Errorf("one configuration under two states: the roots of before (%v)", err)
	}
	if b.Certificates[0].Leaf != a.Certificates[0].Leaf {
		t.Error("a new serving certificate without need")
	}
}
