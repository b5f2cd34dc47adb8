package webhooks

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/store/status"
)

func authority(t *testing.T, epoch uint64) (*issue.Authority, *tls.Certificate) {
	t.Helper()
	a, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), epoch, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := issue.Serving(a, issue.ServingRequest{Names: []string{"istiod.istio-system.svc"}}, issue.Policy{}, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a, &pair
}

// configuration is one of the default revision, with these roots.
func configuration(policy string, roots ...*x509.Certificate) map[status.Key]status.Found[unstructured.Unstructured] {
	u := &unstructured.Unstructured{Object: map[string]any{"kind": string(status.Validating), "webhooks": []any{map[string]any{"name": "a", "failurePolicy": policy,
		"clientConfig": map[string]any{"service": map[string]any{"namespace": "istio-system", "name": "istiod"}, "caBundle": base64.StdEncoding.EncodeToString(issue.EncodeCertificates(roots...))}}}}}
	u.SetName("a")
	u.SetLabels(map[string]string{status.RevisionLabel: "default"})
	return map[status.Key]status.Found[unstructured.Unstructured]{{Name: "a"}: {Object: u}}
}

// Whether a certificate is believed is not known before both kinds were listed once; where that cannot be, the error says so, and a list from
// before stands.
func TestTrusts(t *testing.T) {
	old, byOld := authority(t, 1)
	fresh, byFresh := authority(t, 2)
	c := &Configurations{Config: Config{Namespace: "istio-system", Log: slog.New(slog.DiscardHandler), Roots: func() []*x509.Certificate { return []*x509.Certificate{old.Certificate, fresh.Certificate} }},
		kinds: map[status.WebhookKind]*kind{status.Validating: {}, status.Mutating: {}}, changed: make(chan struct{})}
	if err := c.Trusts(byOld); err == nil || errors.Is(err, ErrUnread) {
		t.Errorf("before anything is known: %v", err)
	}
	c.fails(status.Validating, errors.New("forbidden"))
	if err := c.Trusts(byOld); !errors.Is(err, ErrUnread) {
		t.Errorf("where they cannot be read: %v", err)
	}
	c.fails(status.Validating, nil)
	seen{c, status.Validating}.Replace(configuration("Ignore", old.Certificate))
	seen{c, status.Mutating}.Replace(nil)
	if err := c.Trusts(byOld); err != nil {
		t.Errorf("by its root: %v", err)
	}
	if err := c.Trusts(byFresh); err == nil {
		t.Error("believed without its root")
	}
	c.fails(status.Validating, errors.New("away"))
	for key, f := range configuration("Ignore", old.Certificate, fresh.Certificate) {
		seen{c, status.Validating}.Observe(key, f)
	}
	if err := c.Trusts(byFresh); err != nil {
		t.Errorf("by both roots: %v", err)
	}
	seen{c, status.Validating}.Observe(status.Key{Name: "a"}, status.Found[unstructured.Unstructured]{})
	if _, all, _ := c.managed(status.Validating); len(all) != 0 {
		t.Errorf("one that was deleted is still there: %v", all)
	}
}
