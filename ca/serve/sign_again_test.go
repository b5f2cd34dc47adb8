package serve_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

// slow is an authority whose signings take a time, and a journal that fails the first entries once it has all of them.
type slow struct {
	*serve.Current
	takes     time.Duration // from the first failure on
	fails     error
	appending sync.WaitGroup
	failed    atomic.Bool
	now, most atomic.Int64 // signings at once
}

func (s *slow) current() (*serve.Current, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	if s.failed.Load() {
		time.Sleep(s.takes)
	}
	return s.Current, nil
}

func (s *slow) Append(context.Context, serve.Entry) error {
	if s.failed.Load() {
		return nil
	}
	s.appending.Done()
	s.appending.Wait()
	s.failed.Store(true)
	return s.fails
}

type authorities func() (*serve.Current, error)

func (a authorities) Current() (*serve.Current, error) { return a() }

// Limits.Signing bounds the certificates that are signed a second time at once, for the journal as for the spare.
// Requests that wait too long are counted as failures.
func TestSigningAgainIsBounded(t *testing.T) {
	csr, _ := request(t)
	for what, c := range map[string]struct {
		fails error
		takes time.Duration
		lost  int64
	}{
		"the journal is away": {errors.New("etcd is gone"), time.Second, 0},
		"a root is published": {serve.ErrStale, time.Minute, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, err := issue.SelfSigned(servetest.TrustDomain, 1, 24*365*time.Hour, time.Now(), nil)
			if err != nil {
				t.Fatal(err)
			}
			own, err := issue.Issue(a, issue.Request{CSR: []byte(csr), Identity: a0(t)}, issue.Policy{}, time.Now(), nil)
			if err != nil {
				t.Fatal(err)
			}
			s := &slow{Current: &serve.Current{Authority: a, Bundle: a.Roots}, fails: c.fails, takes: c.takes}
			var failed, lost atomic.Int64
			server, err := serve.New(serve.Config{Authorities: authorities(s.current), Journal: s, Fallback: &spareStub{},
				Authenticator: fixed{attest.Caller{ID: a0(t), By: attest.ByCertificate, Serial: own.Serial}},
				Limits:        serve.Limits{Signing: 1, MaxWait: 10 * time.Second},
				Audit:         slog.New(slog.DiscardHandler), Hooks: serve.Hooks{SignFailed: func() { failed.Add(1) }}})
			if err != nil {
				t.Fatal(err)
			}
			shown := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{own.Chain}}}
			ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: shown})
			s.appending.Add(5)
			var calls sync.WaitGroup
			for range 5 {
				calls.Go(func() {
					if _, err := server.CreateCertificate(ctx, &securityv1.IstioCertificateRequest{Csr: csr}); err != nil {
						lost.Add(1)
					}
				})
			}
			calls.Wait()
			if s.most.Load() != 1 {
				t.Errorf("%s: %d signings at once", what, s.most.Load())
			}
			if c.lost > 0 && (lost.Load() < c.lost || failed.Load() != lost.Load()) || c.lost == 0 && lost.Load() != 0 {
				t.Errorf("%s: %d requests failed, %d were counted", what, lost.Load(), failed.Load())
			}
		})
	}
}
