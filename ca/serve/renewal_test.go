package serve_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
	"navarch.io/navarch/push/identities"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

const twoDays = 48 * time.Hour

// later is a CA whose clock began some time ago, and advances on request.
type later struct {
	*servetest.CA
	t       *testing.T
	now     time.Time
	ending  int
	machine func(spiffeid.ID) bool
	away    bool // tokens cannot be verified
}

// Authenticate implements attest.Authenticator, for tokens.
func (l *later) Authenticate(ctx context.Context) (attest.Caller, error) {
	if md, _ := metadata.FromIncomingContext(ctx); l.away && len(md.Get("authorization")) > 0 {
		return attest.Caller{}, fmt.Errorf("%w: no keys", attest.ErrUnavailable)
	}
	return l.CA.Authenticate(ctx)
}

func startLater(t *testing.T, ago, alone, machines time.Duration) *later {
	l := &later{t: t, now: time.Now().Add(-ago), machine: func(id spiffeid.ID) bool { return strings.HasSuffix(id.Path(), "/machine") }}
	cfg := quiet()
	cfg.Now = func() time.Time { return l.now }
	cfg.Authenticator = attest.Chain(&attest.Certificates{TrustDomain: servetest.TrustDomain}, l) // as navarchd: the certificate comes first
	cfg.Renewals = serve.Renewals{Alone: alone, Machines: machines, Tokens: l, Ending: func() { l.ending++ },
		Machine: func(id spiffeid.ID) bool { return l.machine(id) }}
	l.CA = servetest.Start(t, cfg)
	a, err := issue.SelfSigned(servetest.TrustDomain, 1, 10*365*24*time.Hour, l.now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	l.Sign(a)
	return l
}

// ask has a certificate issued, some time after the clock began, by a token, a certificate, or both.
func (l *later) ask(token string, own *tls.Certificate, after time.Duration) (*tls.Certificate, error) {
	l.t.Helper()
	before := l.now
	l.now = l.now.Add(after)
	defer func() { l.now = before }()
	conn := dial(l.t, l.CA, own)
	defer conn.Close()
	csr, key := request(l.t)
	chain, err := create(l.t.Context(), conn, token, &securityv1.IstioCertificateRequest{Csr: csr, ValidityDuration: int64(80 * 24 * time.Hour / time.Second)})
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(chain[0]))
	out := &tls.Certificate{PrivateKey: key, Certificate: [][]byte{block.Bytes}}
	if out.Leaf, err = x509.ParseCertificate(block.Bytes); err != nil {
		l.t.Fatal(err)
	}
	return out, nil
}

func (l *later) must(out *tls.Certificate, err error) *tls.Certificate {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// A certificate is renewed for 48 hours after the last token of its identity, however often; a token begins that again,
// also beside the certificate, but not another's.
// Promise: security-ca.md#renewals-without-a-token, security-workloads.md#renewals-and-revocation
func TestRenewalNeedsATokenNowAndThen(t *testing.T) {
	l := startLater(t, 100*time.Hour, twoDays, 0)
	token := l.Token("shop", "cart")
	own := l.must(l.ask(token, nil, 0))
	for _, after := range []time.Duration{10 * time.Hour, 30 * time.Hour, 47 * time.Hour} {
		own = l.must(l.ask("", own, after))
	}
	refused := func(what, token string) {
		t.Helper()
		if _, err := l.ask(token, own, 49*time.Hour); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "show a token") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("49 hours after the token", "")
	refused("with another's token", l.Token("shop", "other"))
	refused("with no token's text", "x.y")
	l.away = true
	if _, err := l.ask(token, own, 49*time.Hour); status.Code(err) != codes.Unavailable {
		t.Errorf("while tokens cannot be verified: %v", err)
	}
	l.away = false
	both := l.must(l.ask(token, own, 49*time.Hour))
	l.must(l.ask("", both, 96*time.Hour))
	if _, err := l.ask("", both, 98*time.Hour); status.Code(err) != codes.Unauthenticated {
		t.Errorf("49 hours after the second token: %v", err)
	}
	l.must(l.ask(token, nil, 98*time.Hour))
}

// Machines renew for the configured time, or as an operator sets; a warning precedes the end by 14 days.
// Promise: security-workloads.md#renewals-and-revocation
func TestRenewalOfMachines(t *testing.T) {
	const day = 24 * time.Hour
	l := startLater(t, 60*day, twoDays, 0)
	own := l.must(l.ask(l.Token("shop", "machine"), nil, 0))
	l.must(l.ask("", own, 59*day))
	l = startLater(t, 60*day, twoDays, 30*day)
	own = l.must(l.ask(l.Token("shop", "machine"), nil, 0))
	l.must(l.ask("", own, 15*day))
	if l.ending != 0 {
		t.Error("15 days before the end operators are told")
	}
	own = l.must(l.ask("", own, 17*day))
	if l.ending != 1 {
		t.Error("13 days before the end operators are not told")
	}
	if _, err := l.ask("", own, 31*day); status.Code(err) != codes.Unauthenticated {
		t.Errorf("after 31 of 30 days: %v", err)
	}
}

// The renewal bound for machines applies to them only, whatever the bound for others: longer, shorter or without end.
// Promise: security-workloads.md#renewals-and-revocation
func TestMachinesHaveABoundOfTheirOwn(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct{ alone, machines, cart, machine time.Duration }{ // how long each of them renews; 0: without end
		{0, 30 * day, 0, 30 * day},
		{2 * day, day, 2 * day, day},
		{2 * day, 0, 2 * day, 0},
		{0, 0, 0, 0},
	} {
		l := startLater(t, 60*day, c.alone, c.machines)
		for account, most := range map[string]time.Duration{"cart": c.cart, "machine": c.machine} {
			own := l.must(l.ask(l.Token("shop", account), nil, 0))
			renews := []time.Duration{55 * day}
			if most > 0 {
				renews = []time.Duration{most - time.Hour, most + time.Hour}
			}
			for i, after := range renews {
				if _, err := l.ask("", own, after); status.Code(err) != []codes.Code{codes.OK, codes.Unauthenticated}[i] {
					t.Errorf("renewals %v, of machines %v: %s after %v: %v", c.alone, c.machines, account, after, err)
				}
			}
		}
	}
}

// A machine renews by its certificate alone while its WorkloadEntry exists; after that, for 48 hours after its last
// token, as a Pod does.
// Promise: security-workloads.md#renewals-and-revocation
func TestRenewalEndsWithTheEntry(t *testing.T) {
	const day = 24 * time.Hour
	entry := &model.Workload{Head: model.Head{Key: model.Key{Kind: model.KindWorkload, Namespace: "shop", Name: model.WorkloadEntryPrefix + "vm"}},
		Spec: &model.WorkloadSpec{Endpoint: &model.Endpoint{Address: "10.0.0.1", ServiceAccount: "vm"}}}
	records := mirror.Empty().Apply(1, []model.Record{entry}, nil).New
	l := startLater(t, 60*day, twoDays, 0)
	l.machine = identities.Machines(func() *mirror.Snapshot { return records })
	own := l.must(l.ask(l.Token("shop", "vm"), nil, 0))
	l.must(l.ask("", own, 50*day))
	records = records.Apply(2, nil, []model.Key{entry.Key}).New
	if _, err := l.ask("", own, 51*day); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "show a token") {
		t.Errorf("without its entry: %v", err)
	}
	l.must(l.ask("", own, day))
	l.must(l.ask(l.Token("shop", "vm"), own, 51*day))
}

// A renewal does not end before the presented certificate, whatever was requested: one that ended earlier would be
// pruned from the journal, and with it the link from a revoked certificate to its renewals.
// Promise: security-workloads.md#renewals-and-revocation
func TestRenewalOutlivesWhatWasShown(t *testing.T) {
	l := startLater(t, time.Hour, twoDays, 0)
	own := l.must(l.ask(l.Token("shop", "cart"), nil, 0))
	for _, life := range []time.Duration{0, time.Second, time.Hour, 79 * 24 * time.Hour} {
		conn := dial(t, l.CA, own)
		csr, _ := request(t)
		chain, err := create(t.Context(), conn, "", &securityv1.IstioCertificateRequest{Csr: csr, ValidityDuration: int64(life / time.Second)})
		conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode([]byte(chain[0]))
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if leaf.NotAfter.Before(own.Leaf.NotAfter) {
			t.Errorf("asked for %v: until %v, what was shown until %v", life, leaf.NotAfter, own.Leaf.NotAfter)
		}
	}
}

// A certificate yields no longer lifetime than the default, or than its own remaining one, whatever is requested: only
// a token does, or a machine's certificate.
// Promise: security-workloads.md#renewals-and-revocation
func TestRenewalByCertificateIsNotLonger(t *testing.T) {
	l := startLater(t, 100*time.Hour, twoDays, 0)
	short := func(account string) *tls.Certificate {
		conn := dial(t, l.CA, nil)
		defer conn.Close()
		csr, key := request(t)
		chain, err := create(t.Context(), conn, l.Token("shop", account), &securityv1.IstioCertificateRequest{Csr: csr, ValidityDuration: int64(200 * time.Hour / time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode([]byte(chain[0]))
		return &tls.Certificate{PrivateKey: key, Certificate: [][]byte{block.Bytes}}
	}
	for account, longest := range map[string]time.Duration{"cart": 201 * time.Hour, "machine": 81 * 24 * time.Hour} {
		renewed := l.must(l.ask("", short(account), time.Hour)) // requests 80 days
		if got := renewed.Leaf.NotAfter.Sub(l.now); got > longest || got < longest*8/10 {
			t.Errorf("%s: a certificate of 200 h made one of %v", account, got)
		}
	}
}
