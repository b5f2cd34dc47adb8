// Package site is the owner of the host that the demos serve to users: an authority that users trust, the certificates
// of the host, and the Secret that a Gateway names. All keys are made at run time.
//
// Owns: the authority's key, in memory. Reads: nothing. Never: writes a key anywhere.
package site

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Host is the host, and Secret the name of the Secret with its certificate.
const (
	Host   = "shop.example.com"
	Secret = "shop-cert"
)

// Site is the owner of Host.
type Site struct {
	root   *x509.Certificate
	key    *ecdsa.PrivateKey
	issued int64 // serial number of the newest certificate
}

// New makes the authority. Errors are those of the random source.
func New() (*Site, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	s := &Site{key: key, issued: 1}
	template := s.template()
	template.Subject, template.DNSNames = pkix.Name{CommonName: "Example root"}, nil
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	s.root, err = x509.ParseCertificate(der)
	return s, err
}

func (s *Site) template() *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(s.issued), DNSNames: []string{Host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
}

// Next issues the next certificate of the host, and returns the Secret with it and its key, as YAML. Errors are those
// of the random source.
func (s *Site) Next(namespace string) ([]byte, error) {
	s.issued++
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, s.template(), s.root, key.Public(), s.key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: Secret, Namespace: namespace},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}})
}

// Serial returns the serial number of the newest certificate.
func (s *Site) Serial() int64 { return s.issued }

// Root returns the root that users trust, in PEM.
func (s *Site) Root() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.root.Raw})
}

// Client returns the TLS settings of a user.
func (s *Site) Client() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(s.root)
	return &tls.Config{RootCAs: roots, ServerName: Host, MinVersion: tls.VersionTLS12}
}

// Get requests the page / of the host by a scheme, http or https. It returns the answer, whose body is closed, and the
// body. Errors are those of the client.
func Get(ctx context.Context, client *http.Client, scheme string) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+Host+"/", nil)
	if err != nil {
		return nil, nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res, body, err
}
