package configure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// authority is a root, and a certificate that it signed.
func authority(t *testing.T) (*x509.Certificate, *tls.Certificate) {
	t.Helper()
	sign := func(of, by *x509.Certificate, pub *ecdsa.PublicKey, key *ecdsa.PrivateKey) *x509.Certificate {
		of.NotBefore, of.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, of, by, pub, key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // of a reader that does not fail
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: serial.String()}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	root := sign(template, template, &key.PublicKey, key)
	leaf := sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, root, &key.PublicKey, key)
	return root, &tls.Certificate{Certificate: [][]byte{leaf.Raw}, Leaf: leaf}
}

func bundle(roots ...*x509.Certificate) []byte {
	var out []byte
	for _, root := range roots {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	return out
}

// configuration has one webhook of a namespace, which is verified by a bundle.
func configuration(t *testing.T, revision, namespace string, roots []byte) *unstructured.Unstructured {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(`
kind: ValidatingWebhookConfiguration
metadata: {name: a, labels: {istio.io/rev: `+revision+`}}
webhooks:
- name: b
  failurePolicy: Ignore
  clientConfig: {service: {name: istiod, namespace: `+namespace+`}, caBundle: "`+base64.StdEncoding.EncodeToString(roots)+`"}
  objectSelector: {matchLabels: {x: w}, matchExpressions: [{key: istio.io/rev, operator: In, values: [r, s]}, {key: z, operator: DoesNotExist}]}
- name: others
  clientConfig: {service: {name: c, namespace: elsewhere}}
- name: gateway-api.b
  failurePolicy: Ignore
  clientConfig: {service: {name: istiod, namespace: `+namespace+`}, caBundle: "`+base64.StdEncoding.EncodeToString(roots)+`"}
`), &tree); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: tree}
}

// Configurations of the revision and its tags are the mesh's; others only where they show one of its roots, so that one
// of istiod's with a CA of its own is left alone.
func TestManaged(t *testing.T) {
	root, _ := authority(t)
	other, _ := authority(t)
	for name, c := range map[string]struct {
		own, revision, namespace string
		roots                    []byte
		want                     bool
	}{
		"the default revision":        {"", "default", "istio-system", nil, true},
		"this revision":               {"r", "r", "istio-system", bundle(other), true},
		"another, without roots":      {"r", "default", "istio-system", nil, false},
		"another, by the mesh's root": {"r", "default", "istio-system", bundle(other, root), true},
		"another, by its own root":    {"r", "default", "istio-system", bundle(other), false},
		"another namespace":           {"", "default", "istio-two", bundle(root), false},
	} {
		m := Mesh{Namespace: "istio-system", Revision: c.own, Roots: []*x509.Certificate{root}}
		if got := m.Managed(configuration(t, c.revision, c.namespace, c.roots)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The roots are written, and on request failurePolicy Fail, except for webhooks that only warn. Correct values and
// configurations of others are not touched.
func TestWanted(t *testing.T) {
	old, _ := authority(t)
	fresh, _ := authority(t)
	m := Mesh{Namespace: "istio-system"}
	there := configuration(t, "default", "istio-system", bundle(old))
	before := there.DeepCopy()
	both := bundle(old, fresh)
	next := m.Wanted(both, false).Draw(there, 7)
	if next == nil || !m.Has(next, base64.StdEncoding.EncodeToString(both)) || !FailsOpen(next) || next.GetAnnotations()["navarch.io/epoch"] != "7" {
		t.Fatalf("%v", next)
	}
	if other := webhooks(next)[1]["clientConfig"].(map[string]any); other["caBundle"] != nil {
		t.Errorf("the webhook of another namespace has a bundle: %v", other)
	}
	if again := m.Wanted(both, false).Draw(next, 8); again != nil {
		t.Errorf("it is written again: %v", again)
	}
	closed := m.Wanted(both, true).Draw(next, 8)
	if closed == nil || FailsOpen(closed) {
		t.Fatalf("it still fails open: %v", closed)
	}
	if warns := webhooks(closed)[2]; warns["failurePolicy"] != "Ignore" || webhooks(closed)[0]["failurePolicy"] != "Fail" {
		t.Errorf("the webhook that warns only refuses while it does not answer: %v", closed)
	}
	if again := m.Wanted(both, false).Draw(closed, 9); again != nil {
		t.Errorf("it is set back to Ignore: %v", again)
	}
	claimed := closed.DeepCopy()
	claimed.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "helm", Operation: metav1.ManagedFieldsOperationApply}, {Manager: "navarchd", Operation: metav1.ManagedFieldsOperationUpdate}})
	if given := m.Wanted(both, true).Draw(claimed, 9); given == nil || len(given.GetManagedFields()) != 1 || given.GetManagedFields()[0].Manager != "helm" {
		t.Errorf("its claims are not given up: %v", given)
	} else if again := m.Wanted(both, true).Draw(given, 9); again != nil {
		t.Errorf("claims are given up twice: %v", again)
	}
	claimed.SetManagedFields(claimed.GetManagedFields()[1:])
	if given := m.Wanted(both, true).Draw(claimed, 9); given != nil {
		t.Errorf("claims are given up where nobody else has one, which API servers do not take: %v", given)
	}
	if m.Wanted(both, true).Draw(nil, 9) != nil {
		t.Error("one that is not there is made")
	}
	if got := Selected(there); len(got) != 2 || got["x"] != "w" || got["istio.io/rev"] != "r" {
		t.Errorf("selected %v", got)
	}
	if got := Names(there); len(got) != 3 || got[0] != "b" {
		t.Errorf("names %v", got)
	}
	if bundle := func(u *unstructured.Unstructured) any { return webhooks(u)[0]["clientConfig"] }; before.GetResourceVersion() != there.GetResourceVersion() || bundle(before).(map[string]any)["caBundle"] != bundle(there).(map[string]any)["caBundle"] {
		t.Error("what was there was changed")
	}
}

// A certificate is believed where its root is in every bundle; a bundle without a root of the mesh is still to be
// written, and garbage in it counts as nothing.
func TestTrusts(t *testing.T) {
	old, by := authority(t)
	fresh, byFresh := authority(t)
	m := Mesh{Namespace: "istio-system", Roots: []*x509.Certificate{old, fresh}}
	stranger, _ := authority(t)
	for name, c := range map[string]struct {
		roots             []byte
		pair              *tls.Certificate
		trusts, unwritten bool
	}{
		"its root":           {bundle(old), by, true, false},
		"both roots":         {append([]byte("x"), bundle(old, fresh)...), byFresh, true, false},
		"the other root":     {bundle(old), byFresh, false, false},
		"nobody's":           {nil, by, false, true},
		"of a stranger":      {bundle(stranger), by, false, true},
		"garbage":            {[]byte("garbage"), by, false, true},
		"out of date":        {bundle(old), &tls.Certificate{Certificate: by.Certificate, Leaf: func() *x509.Certificate { l := *by.Leaf; l.NotAfter = now.Add(-time.Minute); return &l }()}, false, false},
		"no leaf to look at": {bundle(old), &tls.Certificate{Certificate: by.Certificate}, false, false},
	} {
		if err := m.Trusts(configuration(t, "default", "istio-system", c.roots), c.pair, now); (err == nil) != c.trusts || errors.Is(err, ErrUnwritten) != c.unwritten {
			t.Errorf("%s: %v", name, err)
		}
	}
}
