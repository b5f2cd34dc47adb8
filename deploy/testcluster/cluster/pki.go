package cluster

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Common names of the API server's client certificates, for nodes and for servers of aggregated APIs.
const (
	kubeletClient = "kube-apiserver-kubelet-client"
	frontProxy    = "front-proxy-client"
)

// pki is the certificate authority of one cluster.
type pki struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	authority   []byte // PEM
}

func newPKI(dir string) (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, key: key}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster of processes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	if p.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	p.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return p, os.WriteFile(p.file("ca.crt"), p.authority, 0o644)
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// issue returns a certificate chain and its key, as PEM. hosts are names or addresses; a client's certificate lists
// neither.
func (p *pki) issue(name string, hosts ...string) (chain, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.certificate, &private.PublicKey, p.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	chain = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), p.authority...)
	return chain, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

// writeServing writes NAME.crt and NAME.key into dir, for a server with these names and addresses.
func (p *pki) writeServing(dir, name string, hosts ...string) error {
	chain, key, err := p.issue(name, hosts...)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".crt"), chain, 0o644),
		os.WriteFile(filepath.Join(dir, name+".key"), key, 0o600))
}

// writeClient writes a client's certificate and key, and returns their paths.
func (p *pki) writeClient(name string) (certificate, key string, err error) {
	chain, private, err := p.issue(name)
	if err != nil {
		return "", "", err
	}
	certificate, key = p.file(name+".crt"), p.file(name+".key")
	return certificate, key, errors.Join(os.WriteFile(certificate, chain, 0o644), os.WriteFile(key, private, 0o600))
}

// serverOf returns the TLS configuration of a server with these names and addresses. It accepts only clients with one
// common name.
func (p *pki) serverOf(client string, hosts ...string) (*tls.Config, error) {
	chain, key, err := p.issue(hosts[0], hosts...)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(bytes.Clone(chain), key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(p.certificate)
	return &tls.Config{Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12,
		VerifyConnection: func(s tls.ConnectionState) error {
			if got := s.PeerCertificates[0].Subject.CommonName; got != client {
				return errors.New("not the client " + client + ": " + got)
			}
			return nil
		}}, nil
}
