package serve_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

// gate is an authenticator that holds checks of one sort until it is opened, and counts how many are under way.
type gate struct {
	hold bool // checks of tokens; else of certificates
	open chan struct{}

	mu      sync.Mutex
	now     [2]int
	most    [2]int
	arrived int
}

func (g *gate) Authenticate(ctx context.Context) (attest.Caller, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	sort, by := 0, attest.ByCertificate
	if token := md.Get("authorization"); len(token) > 0 {
		sort, by = 1, attest.ByToken
	}
	g.mu.Lock()
	g.now[sort]++
	g.most[sort] = max(g.most[sort], g.now[sort])
	g.arrived++
	name := fmt.Sprintf("%s-%d", by, g.arrived)
	g.mu.Unlock()
	defer func() { g.mu.Lock(); g.now[sort]--; g.mu.Unlock() }()
	if g.hold == (sort == 1) {
		select {
		case <-g.open:
		case <-ctx.Done():
			return attest.Caller{}, ctx.Err()
		}
	}
	id, err := spiffeid.FromPath(servetest.TrustDomain, "/ns/a/sa/"+name)
	return attest.Caller{ID: id, By: by}, err
}

// log is a journal that records the order of entries, and blocks before each until the test continues it.
type log struct {
	mu   sync.Mutex
	by   []string
	next chan struct{}
}

func (l *log) Append(ctx context.Context, e serve.Entry) error {
	l.mu.Lock()
	l.by = append(l.by, e.By)
	l.mu.Unlock()
	select {
	case <-l.next:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *log) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.by)
}

func calls(t *testing.T, cfg serve.Config) (ask func(token bool)) {
	t.Helper()
	csr, _ := request(t)
	a, err := issue.SelfSigned(servetest.TrustDomain, 1, 24*365*time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Authorities = constant{&serve.Current{Authority: a, Bundle: a.Roots}}
	cfg.Audit = slog.New(slog.DiscardHandler)
	s, err := serve.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(token bool) {
		ctx := t.Context()
		if token {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer x"))
		}
		go s.CreateCertificate(ctx, &securityv1.IstioCertificateRequest{Csr: csr}) //nolint:errcheck // judged by the journal
	}
}

// TestChecksAreBoundedBySort: however many tokens are being checked, at most Limits.Checks are at once, and
// certificates are checked and served beside them; and the other way round.
func TestChecksAreBoundedBySort(t *testing.T) {
	for _, held := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g, l := &gate{hold: held, open: make(chan struct{})}, &log{next: make(chan struct{})}
			close(l.next)
			ask := calls(t, serve.Config{Authenticator: g, Journal: l, Limits: serve.Limits{Checks: 3, Signing: 2}})
			for range 20 {
				ask(held)
			}
			synctest.Wait()
			of := map[bool]int{true: 1, false: 0}
			if got := g.most[of[held]]; got != 3 {
				t.Errorf("tokens held %v: %d checks at once, want 3", held, got)
			}
			for range 5 {
				ask(!held)
			}
			synctest.Wait()
			if n := len(l.order()); n != 5 {
				t.Errorf("tokens held %v: %d of the other sort were served, want all 5", held, n)
			}
			close(g.open)
			synctest.Wait()
			if n := len(l.order()); n != 25 || g.most[of[held]] > 3 {
				t.Errorf("tokens held %v: %d served in the end, at most %d at once", held, n, g.most[of[held]])
			}
		})
	}
}

// Tokens beside certificates that are too old are bounded as other tokens are.
func TestChecksOfRenewalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := &gate{hold: true, open: make(chan struct{})}, &log{next: make(chan struct{})}
		close(l.next)
		ask := calls(t, serve.Config{Authenticator: fixed{attest.Caller{ID: a0(t), By: attest.ByCertificate}}, Journal: l,
			Limits: serve.Limits{Checks: 3}, Renewals: serve.Renewals{Alone: time.Hour, Tokens: g}})
		for range 20 {
			ask(true)
		}
		synctest.Wait()
		if g.most[1] != 3 {
			t.Errorf("%d checks at once, want 3", g.most[1])
		}
		close(g.open)
	})
}

// Callers with tokens, which have no certificate yet, sign before renewals that came earlier, except for one renewal in
// FirstRuns.
func TestTokensGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := &gate{hold: true, open: make(chan struct{})}, &log{next: make(chan struct{})}
		close(g.open)
		ask := calls(t, serve.Config{Authenticator: g, Journal: l, Limits: serve.Limits{Signing: 1, Journal: 1, FirstRuns: 2}})
		ask(false) // holds the journal, and so the only slot
		synctest.Wait()
		for range 3 {
			ask(false)
		}
		synctest.Wait()
		for range 4 {
			ask(true)
		}
		synctest.Wait()
		for range 8 {
			l.next <- struct{}{}
			synctest.Wait()
		}
		got := strings.NewReplacer(attest.ByCertificate, "renewal", attest.ByToken, "first").Replace(strings.Join(l.order(), " "))
		if want := "renewal first first renewal first first renewal renewal"; got != want {
			t.Errorf("signed %s, want %s", got, want)
		}
	})
}

// moving is an authority and a journal that is ahead of it: an entry of another publication than the newest is stale.
type moving struct {
	mu      sync.Mutex
	current serve.Current
	next    []*issue.Authority // signers that take over, one with each refused entry
	refused error
	taken   []serve.Entry
}

func (m *moving) Current() (*serve.Current, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.current
	return &c, nil
}

func (m *moving) Append(_ context.Context, e serve.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused != nil {
		return fmt.Errorf("journal: %w", m.refused)
	}
	if len(m.next) > 0 {
		m.current.Authority, m.next = m.next[0], m.next[1:]
		m.current.Bundle = append(m.current.Bundle, m.current.Authority.Certificate)
		m.current.Publication++
		return fmt.Errorf("journal: %w", serve.ErrStale)
	}
	m.taken = append(m.taken, e)
	return nil
}

// A certificate that became stale between signing and journal is signed again without cost for its caller, and the
// response equals the journal's entry. One that stays stale fails after some attempts; a revoked identity is refused as
// such.
func TestStaleIsSignedAgain(t *testing.T) {
	csr, _ := request(t)
	var all []*issue.Authority
	for epoch := range uint64(9) {
		a, err := issue.SelfSigned(servetest.TrustDomain, 1+epoch, time.Hour, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	m := &moving{current: serve.Current{Authority: all[0], Bundle: all[0].Roots, Publication: 1}}
	var failed int
	s, err := serve.New(serve.Config{Authorities: m, Journal: m, Authenticator: fixed{attest.Caller{ID: a0(t), By: attest.ByCertificate, Serial: "abc"}},
		Audit: slog.New(slog.DiscardHandler), Hooks: serve.Hooks{SignFailed: func() { failed++ }}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() (*securityv1.IstioCertificateResponse, error) {
		return s.CreateCertificate(t.Context(), &securityv1.IstioCertificateRequest{Csr: csr})
	}
	m.next = all[1:4]
	answer, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.taken) != 1 || m.taken[0].Publication != 4 || m.taken[0].Previous != "abc" || failed != 0 {
		t.Fatalf("%+v, %d failures", m.taken, failed)
	}
	leaf := parse(t, answer.CertChain[0])
	if serve.Serial(leaf) != m.taken[0].Serial || m.taken[0].Epoch != 4 || leaf.CheckSignatureFrom(all[3].Certificate) != nil {
		t.Errorf("the answer is not what the journal holds, or not the newest signer's: %+v", m.taken[0])
	}
	if got := strings.Count(answer.CertChain[len(answer.CertChain)-1], "BEGIN"); got != 4 {
		t.Errorf("a bundle of %d roots, want the newest", got)
	}
	m.next = all[4:8]
	if _, err := ask(); status.Code(err) != codes.Unavailable || failed != 1 || len(m.next) != 0 {
		t.Errorf("stale over and over: %v, %d left", err, len(m.next))
	}
	m.refused = serve.ErrRevoked
	if _, err := ask(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "is revoked") {
		t.Errorf("revoked meanwhile: %v", err)
	}
	m.refused = nil
	for range 100 { // every slot was released
		if _, err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.Stats(); r.Signing != 0 || r.Writing != 0 || r.First+r.Renewals+r.Delayed != 0 {
		t.Errorf("%+v", r)
	}
}

// TestAliases: a CSR may name its caller under an alias of the trust domain, as long as it is one.
func TestAliases(t *testing.T) {
	old := spiffeid.RequireTrustDomainFromString("old.example")
	var aliases []spiffeid.TrustDomain
	cfg := quiet()
	cfg.Aliases = func() []spiffeid.TrustDomain { return aliases }
	ca := servetest.Start(t, cfg)
	conn := dial(t, ca, nil)
	defer conn.Close()
	csr, _ := request(t, "spiffe://old.example/ns/shop/sa/cart")
	ask := func() error {
		_, err := create(t.Context(), conn, ca.Token("shop", "cart"), &securityv1.IstioCertificateRequest{Csr: csr})
		return err
	}
	if err := ask(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("not an alias: %v", err)
	}
	aliases = []spiffeid.TrustDomain{old}
	if err := ask(); err != nil {
		t.Errorf("an alias: %v", err)
	}
	if e := ca.Entries(); len(e) != 1 || e[0].Identity.String() != "spiffe://cluster.local/ns/shop/sa/cart" {
		t.Errorf("%+v", e)
	}
}

type remembers struct{ err error }

func (r remembers) Seen(_ context.Context, nonce []byte) ([]byte, error) {
	return append([]byte("seen "), nonce...), r.err
}

// TestAskPeers: answers of those that answer, and errors of those that do not, each named.
func TestAskPeers(t *testing.T) {
	start := func(m serve.Memory) string {
		cfg := quiet()
		cfg.Memory = m
		return servetest.Start(t, cfg).Address
	}
	good, sealed, without := start(remembers{}), start(remembers{errors.New("the KMS is away")}), start(nil)
	nonce := []byte("0123456789abcdef")
	answers, err := serve.AskPeers(t.Context(), []string{good, sealed, without, good, "127.0.0.1:1", "nowhere"}, nonce)
	if len(answers) != 1 || string(answers[0]) != "seen 0123456789abcdef" {
		t.Errorf("%q", answers)
	}
	for _, want := range []string{"the KMS is away", sealed, without, "does not answer peers", "127.0.0.1:1", `"nowhere": want host:port`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
	for _, n := range []int{0, 15, 65, 5000} {
		if answers, err := serve.AskPeers(t.Context(), []string{good}, make([]byte, n)); len(answers) != 0 || !strings.Contains(fmt.Sprint(err), "nonce of") {
			t.Errorf("a nonce of %d bytes: %q, %v", n, answers, err)
		}
	}
	conn := dial(t, servetest.Start(t, quiet()), nil)
	defer conn.Close()
	if err := conn.Invoke(t.Context(), serve.PeersMethod, wrapperspb.Bytes(nonce), &wrapperspb.BytesValue{}); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// byToken distinguishes a CA's callers by their tokens.
type byToken struct{ *servetest.CA }

func (b *byToken) Authenticate(ctx context.Context) (attest.Caller, error) {
	c, err := b.CA.Authenticate(ctx)
	md, _ := metadata.FromIncomingContext(ctx)
	c.Token = strings.Join(md.Get("authorization"), " ")
	return c, err
}

// A Pod that requests certificate after certificate is refused; another Pod of its account, with another token, is not.
// Promise: security-limits.md#certificates
func TestOneCredentialLeavesCertificates(t *testing.T) {
	cfg, who := quiet(), &byToken{}
	cfg.Authenticator, cfg.Limits = who, serve.Limits{Rate: .1, Burst: 8, MaxWait: time.Second}
	who.CA = servetest.Start(t, cfg)
	conn := dial(t, who.CA, nil)
	defer conn.Close()
	csr, _ := request(t)
	var got []string
	hog, other := who.CA.Token("shop", "web"), who.CA.Token("shop", "web")
	for _, token := range []string{hog, hog, hog, other, hog, other} {
		_, err := create(t.Context(), conn, token, &securityv1.IstioCertificateRequest{Csr: csr})
		got = append(got, status.Code(err).String())
	}
	if got, want := strings.Join(got, " "), "OK OK ResourceExhausted OK ResourceExhausted OK"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
