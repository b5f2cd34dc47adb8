// Package vaulttest makes the content of TLS Secrets for tests.
//
// Owns: nothing.
// Reads: no other package of Navarch.
// Never: is imported by product code.
package vaulttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// Pair makes a P-256 key and a self-signed certificate for it. The result cert is the certificate in PEM, and the
// result key is the private key in PEM (PKCS #8). The result private is the same private key, not encoded. The
// certificate has no subject and no DNS name, and expires one hour after the call. Errors end the test at once.
func Pair(t testing.TB) (cert, key []byte, private *ecdsa.PrivateKey) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), private
}
