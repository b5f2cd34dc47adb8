package trust

import (
	"context"
	"crypto/x509"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/serve"
)

// The resources of agents follow the keyring: encoded once for each content, and never without the lists of their
// roots.
func TestTrustFollowsKeyring(t *testing.T) {
	epochs := []*issue.Authority{newAuthority(t, 1), newAuthority(t, 2)}
	one, revoked, two := listed(t, 1, epochs[0]), listed(t, 2, epochs[0]), listed(t, 3, epochs...)
	again := *one
	sealed := *listed(t, 4, epochs...)
	sealed.CRLs, sealed.Sealed = nil, errors.New("sealed")
	unlisted := *two
	unlisted.CRLs = nil

	tr := New("")
	all := []string{agentapi.TrustURL, pcdsURL}
	answers := func() (both []*serve.AgentResource) {
		for i, a := range tr.AgentTypes() {
			if a.TypeURL != all[i] {
				t.Fatalf("type %d is %s", i, a.TypeURL)
			}
			both = append(both, a.Resource(serve.Client{}, nil))
		}
		return both
	}
	if got := answers(); got[0] != nil || got[1] != nil {
		t.Fatal("an answer from nothing")
	}
	for _, step := range []struct {
		what  string
		state *keyring.State
		want  []string
	}{
		{"not loaded", &keyring.State{Sealed: keyring.ErrNotLoaded}, nil},
		{"sealed from the start", &sealed, nil},
		{"loaded", one, all},
		{"another state of the same content", &again, nil},
		{"a revocation", revoked, []string{agentapi.TrustURL}},
		{"sealed, with roots and no lists", &sealed, nil},
		{"a second root", two, all},
		{"an issuer without lists", &unlisted, []string{agentapi.TrustURL}},
	} {
		before := answers()
		got, err := tr.encode(step.state)
		if err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: %v changed (%v), want %v", step.what, got, err, step.want)
		}
		for i, now := range answers() {
			if changed := slices.Contains(got, all[i]); changed != (now != before[i]) {
				t.Errorf("%s: %s is another resource: %v, told: %v", step.what, all[i], now != before[i], changed)
			}
		}
	}
	if got := answers(); got[0].Name != "ROOTCA" || got[1].Name != "" {
		t.Errorf("names %q, %q", got[0].Name, got[1].Name)
	}
	listsMatter(t, tr, two)
}

func newAuthority(t *testing.T, epoch uint64) *issue.Authority {
	t.Helper()
	a, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), epoch, 365*24*time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// listed returns a keyring of these issuers whose revocation lists have the number.
func listed(t *testing.T, number int64, epochs ...*issue.Authority) *keyring.State {
	t.Helper()
	s := &keyring.State{}
	for _, a := range epochs {
		s.Bundle = append(s.Bundle, a.Certificate)
		der, err := issue.CRL(a, big.NewInt(number), nil, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.CRLs = append(s.CRLs, keyring.CRL{Epoch: a.Epoch, DER: der})
	}
	return s
}

// listsMatter compares the resources of two issuers, first without their lists, then with them.
func listsMatter(t *testing.T, tr *Trust, two *keyring.State) {
	t.Helper()
	trusted := func() *tlsv3.CertificateValidationContext {
		v := &tlsv3.CertificateValidationContext{}
		if err := tr.validation.Load().Body().UnmarshalTo(v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := trusted()
	if strings.Count(string(v.GetTrustedCa().GetInlineBytes()), "BEGIN CERTIFICATE") != 2 || v.Crl != nil || v.OnlyVerifyLeafCertCrl {
		t.Errorf("without lists: %v", v)
	}
	if _, err := tr.encode(two); err != nil {
		t.Fatal(err)
	}
	if v = trusted(); strings.Count(string(v.GetCrl().GetInlineBytes()), "BEGIN X509 CRL") != 2 || !v.OnlyVerifyLeafCertCrl {
		t.Errorf("with lists: %v", v)
	}
}

// ring is a keyring with one state after the other.
type ring struct {
	state   *keyring.State
	changed chan struct{}
}

func (r *ring) State() *keyring.State    { return r.state }
func (r *ring) Changed() <-chan struct{} { return r.changed }

// server counts the calls of its methods.
type server struct {
	changed  []string
	rechecks int
}

func (s *server) AgentResourceChanged(typeURL string) { s.changed = append(s.changed, typeURL) }
func (s *server) Recheck() int                        { s.rechecks++; return 0 }

// Each state of the keyring reaches the agents if its resources differ, all streams, because it may revoke, and
// root-cert.pem. The file does not exist before there is a root, nor without a directory for it.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		tr, s := New(dir), &server{}
		one := newAuthority(t, 1)
		r := &ring{state: &keyring.State{Sealed: keyring.ErrNotLoaded}, changed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tr.Run(ctx, r, s) }()
		step := func(what string, state *keyring.State, changed, rechecks int, roots string) {
			t.Helper()
			if state != nil {
				was := r.changed
				r.state, r.changed = state, make(chan struct{})
				close(was)
			}
			synctest.Wait()
			file, err := os.ReadFile(filepath.Join(dir, "root-cert.pem"))
			if len(s.changed) != changed || s.rechecks != rechecks || string(file) != roots || tr.RootsWritten() != (err == nil) {
				t.Errorf("%s: %v changed, %d rechecks, %d bytes of roots (%v), written %t", what, s.changed, s.rechecks, len(file), err, tr.RootsWritten())
			}
		}
		roots := string(issue.EncodeCertificates(one.Certificate))
		step("not loaded", nil, 0, 1, "")
		step("loaded", listed(t, 1, one), 2, 2, roots)
		step("a revocation", listed(t, 2, one), 3, 3, roots)
		step("without roots", &keyring.State{Sealed: errors.New("sealed")}, 3, 4, roots)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		none := New("")
		if err := none.Run(ctx, r, nil); err != nil || none.RootsWritten() {
			t.Errorf("without a directory: %v, written %t", err, none.RootsWritten())
		}
	})
}

// A process that starts with a full disk finds the roots in the file, and writes nothing.
func TestRootsThatAreThere(t *testing.T) {
	dir, one := t.TempDir(), newAuthority(t, 1)
	path := filepath.Join(dir, "root-cert.pem")
	if err := os.WriteFile(path, issue.EncodeCertificates(one.Certificate), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil { // so that nothing can be written
		t.Fatal(err)
	}
	tr := New(dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tr.Run(ctx, &ring{state: listed(t, 1, one), changed: make(chan struct{})}, nil); err != nil || !tr.RootsWritten() {
		t.Errorf("%v, written %t", err, tr.RootsWritten())
	}
}

// Stock agents receive the roots in the mesh configuration, beside the keyring's and without any. Navarch's agents do
// not, because other CAs have no revocation lists.
func TestRootsOfOtherCAs(t *testing.T) {
	tr := New("")
	texts := func() []string {
		r := tr.roots.Load()
		if r == nil {
			return nil
		}
		pcds := &meshv1alpha1.ProxyConfig{}
		if err := r.Body().UnmarshalTo(pcds); err != nil {
			t.Fatal(err)
		}
		return pcds.CaCertificatesPem
	}
	own := newAuthority(t, 1)
	pem := string(issue.EncodeCertificates(own.Certificate))
	for i, step := range []struct {
		others  []string
		changed bool
		want    []string
	}{{nil, false, nil}, {[]string{"a"}, true, []string{"a"}}, {[]string{"a"}, false, []string{"a"}}, {nil, false, []string{"a"}}} {
		if changed, err := tr.Others(step.others); err != nil || changed != step.changed || !slices.Equal(texts(), step.want) {
			t.Errorf("step %d: changed %v, %v, have %q", i, changed, err, texts())
		}
	}
	if changed, err := tr.encode(&keyring.State{Bundle: []*x509.Certificate{own.Certificate}}); err != nil || !slices.Equal(changed, []string{agentapi.TrustURL, pcdsURL}) || !slices.Equal(texts(), []string{pem}) {
		t.Errorf("with a keyring: %v changed, %v, have %q", changed, err, texts())
	}
	before := tr.validation.Load()
	if changed, err := tr.Others([]string{"b", "c"}); err != nil || !changed || !slices.Equal(texts(), []string{pem, "b", "c"}) || tr.validation.Load() != before {
		t.Errorf("beside a keyring: %v, %v, have %q", changed, err, texts())
	}
}
