package main

import (
	"crypto/rand"
	"encoding/base64"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
)

// What Envoy's admin says of a bundle with its revocation list, as a table; what cannot be read is left out, not fatal.
func TestSecretRows(t *testing.T) {
	root, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 7, time.Hour, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	crl, err := issue.CRL(root, big.NewInt(1), []issue.Revoked{{Serial: "9", At: time.Now()}}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	inline := func(pem []byte) map[string]any {
		return map[string]any{"inline_bytes": base64.StdEncoding.EncodeToString(pem)}
	}
	rows := secretRows(map[string]any{"name": "ROOTCA", "validation_context": map[string]any{
		"trusted_ca": inline(append(issue.EncodeCertificates(root.Roots...), "garbage"...)), "crl": inline(issue.EncodeCRL(crl))}})
	if len(rows) != 2 || rows[0][1] != "root" || rows[0][6] != "7" || !slices.Equal(rows[1][:2], []string{"ROOTCA", "crl"}) || !strings.HasPrefix(rows[1][3], "1 ") {
		t.Errorf("rows %q", rows)
	}
	// An operator's CA has no epoch in its name: the signer is what ca status shows beside the epoch.
	if got := epochOf("Acme Issuing CA 2", []byte{0xab, 0xcd, 0xef, 1, 2, 3}); got != "signer abcdef01" {
		t.Errorf("an operator's CA: %q", got)
	}
	if rows := secretRows(map[string]any{"name": "default", "tls_certificate": "what?"}); len(rows) != 1 || rows[0][0] != "default" {
		t.Errorf("rows %q", rows)
	}
}
