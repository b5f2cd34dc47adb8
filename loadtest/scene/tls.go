package scene

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// trustDomain is the trust domain of the harness's certificates.
const trustDomain = "cluster.local"

// serverName is the DNS name in the harness's server certificate.
const serverName = "istiod.istio-system.svc"

// TLS describes the proxies' TLS. With Dir, each proxy has a certificate of its identity from the CA that makeCA wrote
// there; otherwise all share one certificate or present no certificate.
type TLS struct {
	Dir        string `json:"dir,omitempty"`
	Roots      string `json:"roots,omitempty"` // PEM file for verifying the server's certificate
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	ServerName string `json:"server_name,omitempty"`
	// Authority is a CA that issues each identity's certificate; nil: no such CA.
	Authority *Authority `json:"authority,omitempty"`
}

func (t TLS) on() bool { return t.Dir != "" || t.Roots != "" || t.Authority != nil }

// Files of a CA's folder.
const (
	fileRoot, fileRootKey     = "root.pem", "root.key"
	fileServer, fileServerKey = "server.pem", "server.key"
)

// makeCA writes a root, its key, and a certificate with key for servers on loopback. The keys have no use outside of
// the run.
func makeCA(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	root := template("load harness")
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return err
	}
	if root, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	server := template("navarchd")
	server.DNSNames, server.IPAddresses = []string{serverName, "localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, root, serverKey.Public(), key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(dir, fileRoot, fileRootKey, der, key), writePEM(dir, fileServer, fileServerKey, serverDER, serverKey))
}

func template(name string) *x509.Certificate {
	now := time.Now()
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // never fails
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
}

func writePEM(dir, certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, certFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}

// client returns the TLS configuration of proxies; nil for plain text. Errors name the file.
func (t TLS) client() (func(proxy.Identity) (*tls.Config, error), error) {
	if !t.on() {
		return nil, nil
	}
	roots, name := t.Roots, t.ServerName
	if t.Dir != "" {
		roots, name = filepath.Join(t.Dir, fileRoot), serverName
	}
	raw, err := os.ReadFile(roots)
	if err != nil {
		return nil, fmt.Errorf("roots of the server: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("roots of the server: %s holds no PEM certificate", filepath.Base(roots))
	}
	base := asEnvoy(pool, name)
	if t.Dir != "" {
		return issuer(t.Dir, base)
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate of the proxies: %w", err)
		}
		base.Certificates = []tls.Certificate{pair}
	}
	return func(proxy.Identity) (*tls.Config, error) { return base, nil }, nil
}

// asEnvoy returns the client configuration of all proxies. Key exchange and records are those of BoringSSL as Envoy
// configures it, without the post-quantum key share of Go's clients. Each handshake verifies that the server has the
// key of its certificate. The chain of a certificate is verified only once, because the harness shares the cores that
// it measures.
func asEnvoy(roots *x509.CertPool, name string) *tls.Config {
	var verified sync.Map // leaf certificate as DER
	return &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}, DynamicRecordSizingDisabled: true,
		InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error {
			leaf := state.PeerCertificates[0] // never empty: sessions are not resumed, and servers must present a certificate
			if _, known := verified.Load(string(leaf.Raw)); known {
				return nil
			}
			options := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
			for _, c := range state.PeerCertificates[1:] {
				options.Intermediates.AddCert(c)
			}
			_, err := leaf.Verify(options)
			if err == nil {
				verified.Store(string(leaf.Raw), true)
			}
			return err
		}}
}

// issuer returns a function that makes the configuration of an identity, with its certificate, once.
func issuer(dir string, base *tls.Config) (func(proxy.Identity) (*tls.Config, error), error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, fileRoot), filepath.Join(dir, fileRootKey))
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // shared by all, because only the server's cost is measured
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	made := map[string]*tls.Config{}
	return func(id proxy.Identity) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		name := id.SPIFFE(trustDomain)
		if made[name] != nil {
			return made[name], nil
		}
		uri, err := url.Parse(name)
		if err != nil {
			return nil, err
		}
		leaf := template("")
		leaf.URIs = []*url.URL{uri}
		der, err := x509.CreateCertificate(rand.Reader, leaf, pair.Leaf, key.Public(), pair.PrivateKey)
		if err != nil {
			return nil, err
		}
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		conf := base.Clone()
		conf.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}}
		made[name] = conf
		return conf, nil
	}, nil
}
