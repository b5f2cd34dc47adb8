package show

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
)

// The table shows a bundle with its revocation list, as Envoy's admin prints it; unreadable entries are left out.
func TestSecretRows(t *testing.T) {
	root, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 7, time.Hour, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	crl, err := issue.CRL(root, big.NewInt(1), []issue.Revoked{{Serial: "9", At: time.Now()}}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	inline := func(pem []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem}}
	}
	rows := secretRows(Filter{}, &tlsv3.Secret{Name: "ROOTCA", Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		TrustedCa: inline(append(issue.EncodeCertificates(root.Roots...), "garbage"...)), Crl: inline(issue.EncodeCRL(crl))}}})
	if len(rows) != 2 || rows[0][1] != "root" || rows[0][6] != "7" || !slices.Equal(rows[1][:2], []string{"ROOTCA", "crl"}) || !strings.HasPrefix(rows[1][3], "1 ") {
		t.Errorf("rows %q", rows)
	}
	// An operator's CA has no epoch in its name: the signer is what ca status shows beside the epoch.
	if got := epochOf("Acme Issuing CA 2", []byte{0xab, 0xcd, 0xef, 1, 2, 3}); got != "signer abcdef01" {
		t.Errorf("an operator's CA: %q", got)
	}
	if rows := secretRows(Filter{}, &tlsv3.Secret{Name: "default"}); len(rows) != 1 || rows[0][0] != "default" {
		t.Errorf("rows %q", rows)
	}
	// The certificate of a gateway's server has names instead of an identity. It may sign, as openssl's do.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(255), DNSNames: []string{"a.com", "*.a.com"},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	chain := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), issue.EncodeCertificates(root.Roots...)...)
	pair := &tlsv3.TlsCertificate{CertificateChain: inline(chain)}
	rows = secretRows(Filter{}, &tlsv3.Secret{Name: "kubernetes://a", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: pair}})
	if len(rows) != 2 || !slices.Equal(rows[0][:4], []string{"kubernetes://a", "leaf", "a.com,*.a.com", "ff"}) || rows[1][1] != "issuer" {
		t.Errorf("rows of a gateway's certificate: %q", rows)
	}
}
