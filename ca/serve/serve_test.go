package serve_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

func request(t testing.TB, uris ...string) (string, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), key
}

// dial opens a connection; own is the client's certificate, if any.
func dial(t testing.TB, ca *servetest.CA, own *tls.Certificate) *grpc.ClientConn {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Roots())
	conf := &tls.Config{RootCAs: pool, ServerName: servetest.ServerName, MinVersion: tls.VersionTLS12}
	if own != nil {
		conf.Certificates = []tls.Certificate{*own}
	}
	conn, err := grpc.NewClient(ca.Address, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func create(ctx context.Context, conn *grpc.ClientConn, token string, r *securityv1.IstioCertificateRequest) ([]string, error) {
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	resp, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, r)
	return resp.GetCertChain(), err
}

// first gets a certificate by token, and the key that goes with it.
func first(t testing.TB, ca *servetest.CA, ns, sa string) (*tls.Certificate, []string) {
	t.Helper()
	conn := dial(t, ca, nil)
	defer conn.Close()
	csr, key := request(t)
	chain, err := create(t.Context(), conn, ca.Token(ns, sa), &securityv1.IstioCertificateRequest{Csr: csr})
	if err != nil {
		t.Fatal(err)
	}
	own := &tls.Certificate{PrivateKey: key}
	for _, c := range chain[:len(chain)-1] {
		block, _ := pem.Decode([]byte(c))
		own.Certificate = append(own.Certificate, block.Bytes)
	}
	if own.Leaf, err = x509.ParseCertificate(own.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	return own, chain
}

func TestAnswerAndJournalAndAudit(t *testing.T) {
	var logged bytes.Buffer
	ca := servetest.Start(t, serve.Config{Audit: slog.New(slog.NewJSONHandler(&logged, nil))})
	old := ca.NewAuthority(7)
	current, _ := ca.Current()
	ca.Sign(current.Authority, old) // publication 2
	own, chain := first(t, ca, "shop", "cart")

	if len(chain) != 2 {
		t.Fatalf("%d elements, want leaf and bundle", len(chain))
	}
	if !strings.HasSuffix(chain[0], "-----END CERTIFICATE-----\n") || strings.Count(chain[0], "BEGIN") != 1 {
		t.Errorf("the first element is not one PEM block with a newline: %q", chain[0])
	}
	if chain[1] != string(ca.Roots()) || strings.Count(chain[1], "BEGIN") != 2 {
		t.Errorf("the last element is not the bundle of two roots: %q", chain[1])
	}
	pool := x509.NewCertPool()
	pool.AddCert(current.Authority.Certificate)
	if _, err := own.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	const id = "spiffe://cluster.local/ns/shop/sa/cart"
	if got := own.Leaf.URIs[0].String(); got != id {
		t.Errorf("identity %s, want %s", got, id)
	}
	e := ca.Entries()
	if len(e) != 1 || e[0].Serial != serve.Serial(own.Leaf) || e[0].Identity.String() != id || e[0].Publication != 2 || e[0].By != "token" || e[0].Epoch != 1 || !e[0].NotAfter.Equal(own.Leaf.NotAfter) {
		t.Errorf("journal: %+v", e)
	}
	for _, want := range []string{id, e[0].Serial, `"by":"token"`, `"peer":"127.0.0.1:`, `"notAfter"`} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("audit record lacks %s: %s", want, logged.String())
		}
	}
	if strings.Contains(logged.String(), ca.Token("shop", "cart")[:16]) || strings.Contains(logged.String(), "BEGIN") {
		t.Errorf("audit record shows a credential: %s", logged.String())
	}

	// Renewal: the certificate is the credential.
	conn := dial(t, ca, own)
	defer conn.Close()
	csr, _ := request(t)
	if _, err := create(t.Context(), conn, "", &securityv1.IstioCertificateRequest{Csr: csr}); err != nil {
		t.Fatal(err)
	}
	if e := ca.Entries(); len(e) != 2 || e[1].By != "certificate" || e[1].Previous != e[0].Serial || e[0].Previous != "" || e[1].Identity.String() != id {
		t.Errorf("journal after the renewal: %+v", e)
	}
}

// Promise: security-workloads.md#identity-and-private-keys
func TestRefusals(t *testing.T) {
	counts := map[string]*atomic.Int64{}
	hook := func(name string) func() {
		counts[name] = &atomic.Int64{}
		return func() { counts[name].Add(1) }
	}
	ca := servetest.Start(t, serve.Config{Audit: slog.New(slog.DiscardHandler), Hooks: serve.Hooks{
		Request: hook("request"), Unauthenticated: hook("unauthenticated"), BadCSR: hook("csr"), BadIdentity: hook("identity"), SignFailed: hook("sign"),
	}})
	conn := dial(t, ca, nil)
	defer conn.Close()
	good, _ := request(t)
	foreign, _ := request(t, "spiffe://cluster.local/ns/other/sa/other")
	impersonate, _ := structpb.NewStruct(map[string]any{"ImpersonatedIdentity": "spiffe://cluster.local/ns/a/sa/b"})
	token := ca.Token("shop", "cart")
	revokedCert, _ := first(t, ca, "shop", "thief")
	ca.Revoke(serve.Serial(revokedCert.Leaf))
	ca.Revoke("spiffe://cluster.local/ns/shop/sa/gone")
	byRevoked := dial(t, ca, revokedCert)
	defer byRevoked.Close()

	for _, c := range []struct {
		name, token, csr string
		edit             func(r *securityv1.IstioCertificateRequest)
		conn             *grpc.ClientConn
		code             codes.Code
		says, counts     string
	}{
		{name: "no credential", csr: good, code: codes.Unauthenticated, says: "no credential", counts: "unauthenticated"},
		{name: "forged token", csr: good, token: "e30.AAAA", code: codes.Unauthenticated, says: "signature", counts: "unauthenticated"},
		{name: "no csr", token: token, code: codes.InvalidArgument, says: "csr is empty", counts: "csr"},
		{name: "garbage", token: token, csr: "garbage", code: codes.InvalidArgument, says: "PEM", counts: "csr"},
		{name: "a megabyte", token: token, csr: strings.Repeat("x", 1<<20), code: codes.InvalidArgument, says: "1048576 bytes", counts: "csr"},
		{name: "foreign SAN", token: token, csr: foreign, code: codes.InvalidArgument, says: "spiffe://cluster.local/ns/other/sa/other", counts: "csr"},
		{name: "negative validity", token: token, csr: good, edit: func(r *securityv1.IstioCertificateRequest) { r.ValidityDuration = -1 }, code: codes.InvalidArgument, says: "validity_duration", counts: "csr"},
		{name: "endless validity", token: token, csr: good, edit: func(r *securityv1.IstioCertificateRequest) { r.ValidityDuration = 1 << 62 }, code: codes.InvalidArgument, says: "validity_duration", counts: "csr"},
		{name: "impersonation", token: token, csr: good, edit: func(r *securityv1.IstioCertificateRequest) { r.Metadata = impersonate }, code: codes.PermissionDenied, says: "ImpersonatedIdentity", counts: "identity"},
		{name: "revoked identity", token: ca.Token("shop", "gone"), csr: good, code: codes.PermissionDenied, says: "ns/shop/sa/gone is revoked", counts: "identity"},
		{name: "revoked certificate", conn: byRevoked, csr: good, code: codes.PermissionDenied, says: serve.Serial(revokedCert.Leaf), counts: "identity"},
	} {
		before, entries := counts[c.counts].Load(), len(ca.Entries())
		r := &securityv1.IstioCertificateRequest{Csr: c.csr}
		if c.edit != nil {
			c.edit(r)
		}
		if c.conn == nil {
			c.conn = conn
		}
		chain, err := create(t.Context(), c.conn, c.token, r)
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.says) || chain != nil {
			t.Errorf("%s: %v, want %s with %q", c.name, err, c.code, c.says)
		}
		if counts[c.counts].Load() != before+1 || len(ca.Entries()) != entries {
			t.Errorf("%s: counter %s moved by %d, journal by %d", c.name, c.counts, counts[c.counts].Load()-before, len(ca.Entries())-entries)
		}
	}
}

func TestSealedAndJournalAwayAreUnavailable(t *testing.T) {
	ca := servetest.Start(t, quiet())
	conn := dial(t, ca, nil)
	defer conn.Close()
	csr, _ := request(t)
	ask := func() error {
		_, err := create(t.Context(), conn, ca.Token("a", "b"), &securityv1.IstioCertificateRequest{Csr: csr})
		return err
	}
	for i, set := range []func(error){ca.Seal, ca.BreakJournal} {
		set(errors.New("the KMS does not answer"))
		for range 50 { // more than there are slots: a failure releases its slot
			if err := ask(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the KMS does not answer") {
				t.Fatalf("%d: %v", i, err)
			}
		}
		if n := len(ca.Entries()); n != i {
			t.Errorf("%d: %d entries", i, n)
		}
		set(nil)
		if err := ask(); err != nil {
			t.Errorf("%d, mended: %v", i, err)
		}
	}
}

func TestReportsOfHolders(t *testing.T) {
	ca := servetest.Start(t, quiet())
	own, _ := first(t, ca, "shop", "cart")
	current, _ := ca.Current()
	print := serve.Fingerprint(current.Bundle[0])
	conn, plain := dial(t, ca, own), dial(t, ca, nil)
	defer conn.Close()
	defer plain.Close()
	report := func(conn *grpc.ClientConn, token string, roots ...any) error {
		list, err := structpb.NewList(roots)
		if err != nil {
			t.Fatal(err)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context())
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		return conn.Invoke(ctx, serve.HoldersMethod, list, &emptypb.Empty{})
	}
	if err := report(conn, "", print, strings.ToUpper(print)); err != nil {
		t.Fatal(err)
	}
	r := ca.Reports()
	if len(r) != 1 || r[0].Serial != serve.Serial(own.Leaf) || len(r[0].Roots) != 1 || r[0].Roots[0] != print || r[0].Identity.String() != "spiffe://cluster.local/ns/shop/sa/cart" {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{report(conn, "", slices.Repeat([]any{print}, 256)...), codes.OK},
		{report(conn, "", slices.Repeat([]any{print}, 257)...), codes.InvalidArgument},
		{report(conn, ""), codes.InvalidArgument},
		{report(conn, "", "short"), codes.InvalidArgument},
		{report(conn, "", 7.0), codes.InvalidArgument},
		{report(plain, "", print), codes.Unauthenticated},
		{report(plain, ca.Token("shop", "cart"), print), codes.PermissionDenied},
	} {
		if status.Code(c.err) != c.code {
			t.Errorf("%v, want %s", c.err, c.code)
		}
	}
	if len(ca.Reports()) != 2 {
		t.Errorf("%+v", ca.Reports())
	}
}

func parse(t testing.TB, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type fixed struct{ attest.Caller }

func (f fixed) Authenticate(context.Context) (attest.Caller, error) { return f.Caller, nil }

// blocking is a journal that holds every entry back until it is opened.
type blocking struct{ open chan struct{} }

func (b blocking) Append(ctx context.Context, _ serve.Entry) error {
	select {
	case <-b.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type constant struct{ what *serve.Current }

func (c constant) Current() (*serve.Current, error) { return c.what, nil }

// This test calls the handler itself, in a bubble: a caller that waits for a stuck journal is served when the journal
// continues, and otherwise gets an error within its own deadline or MaxWait.
func TestWaiting(t *testing.T) {
	csr, _ := request(t)
	synctest.Test(t, func(t *testing.T) {
		a, err := issue.SelfSigned(servetest.TrustDomain, 1, 24*365*time.Hour, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		journal := blocking{make(chan struct{})}
		s, err := serve.New(serve.Config{
			Authorities: constant{&serve.Current{Authority: a, Bundle: a.Roots}}, Journal: journal,
			Authenticator: fixed{attest.Caller{ID: a0(t), By: "token"}}, Audit: slog.New(slog.DiscardHandler),
			Limits: serve.Limits{Signing: 1, Journal: 1, MaxWait: 4 * time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		got := map[string]error{}
		took := map[string]time.Duration{}
		ask := func(name string, patience time.Duration) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := s.CreateCertificate(ctx, &securityv1.IstioCertificateRequest{Csr: csr})
			mu.Lock()
			got[name], took[name] = err, time.Since(began)
			mu.Unlock()
		}
		go ask("holds the journal", time.Minute)
		synctest.Wait()
		go ask("impatient", time.Second)
		go ask("patient", time.Minute)
		synctest.Wait()
		if n := s.Stats().First; n != 2 {
			t.Fatalf("%d wait, want 2", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := got["impatient"]; status.Code(err) != codes.DeadlineExceeded || took["impatient"] != time.Second {
			t.Errorf("impatient: %v after %s", err, took["impatient"])
		}
		if n := s.Stats().First; n != 1 {
			t.Errorf("%d wait after one gave up, want 1", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if err := got["holds the journal"]; status.Code(err) != codes.Unavailable || took["holds the journal"] != 4*time.Second {
			t.Errorf("holds the journal: %v after %s", err, took["holds the journal"])
		}
		if err := got["patient"]; status.Code(err) != codes.ResourceExhausted || took["patient"] != 4*time.Second {
			t.Errorf("patient: %v after %s", err, took["patient"])
		}
		go ask("after all", time.Minute)
		close(journal.open)
		synctest.Wait()
		if err, done := got["after all"]; err != nil || !done {
			t.Errorf("after all: %v", err)
		}
	})
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	_, err := serve.New(serve.Config{})
	for _, want := range []string{"Authorities", "Authenticator", "Journal"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
	if _, err := serve.New(serve.Config{Authorities: constant{}, Authenticator: fixed{}, Journal: blocking{}, Limits: serve.Limits{Burst: -1}}); err == nil || !strings.Contains(err.Error(), "Limits.Burst") {
		t.Error(err)
	}
}
