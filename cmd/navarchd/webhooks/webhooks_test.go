package webhooks

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/store/admit/configure"
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

// configuration returns a validating configuration of the default revision with a failure policy and roots.
func configuration(policy string, roots ...*x509.Certificate) map[status.Key]status.Found[unstructured.Unstructured] {
	u := &unstructured.Unstructured{Object: map[string]any{"kind": string(status.Validating), "webhooks": []any{map[string]any{"name": "a", "failurePolicy": policy,
		"clientConfig": map[string]any{"service": map[string]any{"namespace": "istio-system", "name": "istiod"}, "caBundle": base64.StdEncoding.EncodeToString(issue.EncodeCertificates(roots...))}}}}}
	u.SetName("a")
	u.SetLabels(map[string]string{status.RevisionLabel: "default"})
	return map[status.Key]status.Found[unstructured.Unstructured]{{Name: "a"}: {Object: u}}
}

// Trust in a certificate is unknown before both kinds were listed once; if that fails, the error reports so, and an
// earlier list stays in effect.
func TestTrusts(t *testing.T) {
	old, byOld := authority(t, 1)
	fresh, byFresh := authority(t, 2)
	c := &Configurations{Config: Config{Namespace: "istio-system", Log: slog.New(slog.DiscardHandler), Roots: func() []*x509.Certificate { return []*x509.Certificate{old.Certificate, fresh.Certificate} }},
		kinds: map[status.WebhookKind]*kind{status.Validating: {}, status.Mutating: {}}, changed: make(chan struct{})}
	if err := c.Trusts(byOld).Refused; err == nil || errors.Is(err, ErrUnread) {
		t.Errorf("before anything is known: %v", err)
	}
	c.fails(status.Validating, errors.New("forbidden"))
	if err := c.Trusts(byOld).Refused; !errors.Is(err, ErrUnread) {
		t.Errorf("where they cannot be read: %v", err)
	}
	c.fails(status.Validating, nil)
	seen{c, status.Validating}.Replace(nil)
	seen{c, status.Mutating}.Replace(nil)
	if got := c.Trusts(byOld); got != (serving.Trust{}) {
		t.Errorf("where there are none: %v", got)
	}
	seen{c, status.Validating}.Replace(configuration("Ignore"))
	if got := c.Trusts(byOld); !errors.Is(got.Refused, configure.ErrUnwritten) {
		t.Errorf("before the roots are written: %v", got)
	}
	c.Foreign = true
	if got := c.Trusts(byOld); got != (serving.Trust{}) {
		t.Errorf("where somebody else writes them: %v", got)
	}
	c.Foreign = false
	seen{c, status.Validating}.Replace(configuration("Ignore", old.Certificate))
	if got := c.Trusts(byOld); got != (serving.Trust{Callers: true}) {
		t.Errorf("by its root: %v", got)
	}
	if c.Trusts(byFresh).Refused == nil {
		t.Error("believed without its root")
	}
	c.fails(status.Validating, errors.New("away"))
	for key, f := range configuration("Ignore", old.Certificate, fresh.Certificate) {
		seen{c, status.Validating}.Observe(key, f)
	}
	if err := c.Trusts(byFresh).Refused; err != nil {
		t.Errorf("by both roots: %v", err)
	}
	seen{c, status.Validating}.Observe(status.Key{Name: "a"}, status.Found[unstructured.Unstructured]{})
	if _, all, _ := c.managed(status.Validating); len(all) != 0 {
		t.Errorf("one that was deleted is still there: %v", all)
	}
}

// API servers may not use a configuration yet that was observed a moment ago. A certificate is trusted once a
// configuration has been unchanged for a while; changes of its labels do not matter.
func TestConfigurationsSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, byOld := authority(t, 1)
		c := &Configurations{Config: Config{Namespace: "istio-system", Log: slog.New(slog.DiscardHandler), Roots: func() []*x509.Certificate { return []*x509.Certificate{old.Certificate} }},
			settle: settled, kinds: map[status.WebhookKind]*kind{status.Validating: {}, status.Mutating: {}}, changed: make(chan struct{})}
		show := func(generation int64) {
			for key, f := range configuration("Ignore", old.Certificate) {
				f.Object.SetGeneration(generation)
				seen{c, status.Validating}.Observe(key, f)
			}
		}
		seen{c, status.Validating}.Replace(nil)
		seen{c, status.Mutating}.Replace(nil)
		for generation := range int64(2) {
			show(generation)
			time.Sleep(settled - time.Nanosecond)
			if show(generation); c.Trusts(byOld).Refused == nil {
				t.Errorf("generation %d: believed at once", generation)
			}
			time.Sleep(time.Nanosecond)
			if err := c.Trusts(byOld).Refused; err != nil {
				t.Errorf("generation %d, after a while: %v", generation, err)
			}
		}
	})
}

// A root that the mesh no longer trusts stays for a while; the order of the roots is stable.
func TestRootsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, _ := authority(t, 1)
		fresh, _ := authority(t, 2)
		var now []*x509.Certificate
		c := &Configurations{Config: Config{Roots: func() []*x509.Certificate { return now }}}
		same := func(want ...*x509.Certificate) {
			t.Helper()
			if got := c.roots(); !slices.EqualFunc(got, want, (*x509.Certificate).Equal) {
				t.Errorf("%d roots, want %d", len(got), len(want))
			}
		}
		same()
		now = []*x509.Certificate{old.Certificate}
		same(old.Certificate)
		time.Sleep(time.Hour)
		same(old.Certificate)
		now = []*x509.Certificate{fresh.Certificate}
		same(fresh.Certificate, old.Certificate)
		time.Sleep(overlap)
		same(fresh.Certificate, old.Certificate)
		time.Sleep(time.Nanosecond)
		same(fresh.Certificate)
		now = nil
		same()
	})
}
