package keyring_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// authority is a CA certificate of a user's, and its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string, parent *authority) *authority {
	return newAuthorityFor(t, name, parent, x509.KeyUsageCertSign|x509.KeyUsageCRLSign)
}

func newAuthorityFor(t *testing.T, name string, parent *authority, usage x509.KeyUsage) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: usage}
	signed, by := template, key
	if parent != nil {
		signed, by = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signed, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// put writes cacerts: an issuer, and the roots.
func put(t *testing.T, dir string, issuer *authority, roots ...*authority) {
	t.Helper()
	var bundle []byte
	for _, r := range roots {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.cert.Raw})...)
	}
	key, err := x509.MarshalPKCS8PrivateKey(issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.cert.Raw})
	for name, content := range map[string][]byte{"ca-cert.pem": cert, "cert-chain.pem": cert, "root-cert.pem": bundle,
		"ca-key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The user's own CA signs. A new intermediate replaces the old one at once, a new root needs a rotation. Broken files
// change nothing, and files that arrive late on one replica undo nothing.
func TestCACerts(t *testing.T) {
	w := newHarness(t)
	w.cacerts = t.TempDir()
	late := t.TempDir()
	root, second := newAuthority(t, "root", nil), newAuthority(t, "second root", nil)
	one, two, three := newAuthority(t, "one", root), newAuthority(t, "two", root), newAuthority(t, "three", second)

	r, laggard := plugIn(t, w, late, one, root)
	put(t, w.cacerts, two, root) // the same root: holders need no new bundle
	r.settle()
	laggard.settle()
	wantStatuses(t, r.settle(), keyring.Retiring, keyring.Active)
	for _, r := range []*replica{r, laggard} {
		wantIssuer(t, r, two, "the old intermediate signs")
	}

	if err := os.WriteFile(filepath.Join(w.cacerts, "ca-key.pem"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.mustLeaf("web")
	if !strings.Contains(w.logs.String(), "ca-key.pem") {
		t.Error("the log does not name the broken file")
	}

	put(t, w.cacerts, three, second) // another root
	r.settle()
	wantStatuses(t, r.settle(), keyring.Retiring, keyring.Active, keyring.Prepared)
	laggard.settle()
	if s := laggard.State(); len(s.Bundle) != 2 || s.Active.Epoch != 2 {
		t.Fatalf("%v", s)
	}
	if err := r.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	laggard.settle()
	wantIssuer(t, laggard, three, "the old root's intermediate signs")
	w.replica(func(c *keyring.Config) { c.CACerts = keyring.Folder(late) }).settle()
	wantStatuses(t, r.settle(), keyring.Retiring, keyring.Retiring, keyring.Active)

	third := newAuthority(t, "third root", nil)
	put(t, w.cacerts, three, second, third) // a root more for the same issuer
	r.settle()
	if s := r.State(); len(s.Bundle) != 3 || s.Active.Epoch != 3 {
		t.Fatalf("%v", s)
	}
	if len(r.State().CRLs) != 3 {
		t.Errorf("%d lists for three issuers", len(r.State().CRLs))
	}
}

// plugIn starts two replicas with an issuer under a root: one that waited for the files, and one whose files arrive
// late.
func plugIn(t *testing.T, w *harness, late string, one, root *authority) (r, laggard *replica) {
	t.Helper()
	r = w.replica()
	if report := r.settle(); !strings.Contains(report.Sealed, "ca-cert.pem") || len(w.blobs("keys/")) != 0 {
		t.Fatalf("without files: %+v", report)
	}
	put(t, w.cacerts, one, root)
	put(t, late, one, root)
	r.settle()
	laggard = w.replica(func(c *keyring.Config) { c.CACerts = keyring.Folder(late) })
	laggard.settle()
	leaf := r.mustLeaf("web")
	if len(leaf.Chain) != 2 || !leaf.Chain[1].Equal(one.cert) || trusts([]*x509.Certificate{root.cert}, leaf, w.now()) != nil {
		t.Fatalf("chain of %d", len(leaf.Chain))
	}
	if err := r.Rotate(t.Context(), false); err == nil || !strings.Contains(err.Error(), "cacerts") {
		t.Fatalf("rotated a user's CA: %v", err)
	}
	tool := w.replica(func(c *keyring.Config) { c.CACerts, c.Leads = nil, func() bool { return false } })
	if err := tool.Rotate(t.Context(), true); err == nil || !strings.Contains(err.Error(), "cacerts") {
		t.Fatalf("a process without the files rotated a user's CA: %v", err)
	}
	tool.stop()
	return r, laggard
}

// wantIssuer checks the issuer of a replica's certificates; otherwise is the meaning of a failure.
func wantIssuer(t *testing.T, r *replica, want *authority, otherwise string) {
	t.Helper()
	if leaf := r.mustLeaf("web"); !leaf.Chain[1].Equal(want.cert) {
		t.Fatal(otherwise)
	}
}

// A CA that cannot sign revocation lists does not take effect while any certificate is revoked, since lists could no
// longer be signed. If none is, it does, and certificates cannot be revoked by serial number then.
func TestCACertsWithoutLists(t *testing.T) {
	w := newHarness(t)
	w.cacerts = t.TempDir()
	root := newAuthority(t, "root", nil)
	one, signsNoLists := newAuthority(t, "one", root), newAuthorityFor(t, "bare", root, x509.KeyUsageCertSign)
	put(t, w.cacerts, one, root)
	r := w.replica()
	r.settle()
	const id = "spiffe://cluster.local/ns/default/sa/bad"
	if _, err := r.Revoke(t.Context(), nil, []string{id}); err != nil {
		t.Fatal(err)
	}
	put(t, w.cacerts, signsNoLists, root)
	r.settle()
	if report := r.settle(); len(report.Epochs) != 1 {
		t.Fatalf("it took over: %+v", report.Epochs)
	}
	wantIssuer(t, r, one, "a CA without lists signs")
	if !strings.Contains(w.logs.String(), "0 certificates and 1 identities are revoked") {
		t.Error("the log does not say why it does not take over")
	}
	if err := r.Restore(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.settle()
	wantIssuer(t, r, signsNoLists, "the one before signs when nothing is revoked")
	if _, err := r.Revoke(t.Context(), []string{"abc"}, nil); err == nil || !strings.Contains(err.Error(), "cannot sign revocation lists") {
		t.Errorf("a serial number without lists: %v", err)
	}
	if _, err := r.Revoke(t.Context(), nil, []string{id}); err != nil {
		t.Errorf("an identity needs no list: %v", err)
	}
}
