package serving

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	caserve "navarch.io/navarch/ca/serve"
)

// A process without a keyring and without etcd requests its serving certificate from a peer once it knows the mesh's
// roots, and again when they change. Missing roots change nothing.
func TestPeerIssuedByRootsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newAuthorityOf(t, 1), newAuthorityOf(t, 2)
		s, err := New([]string{"localhost"}, "", "")
		if err != nil {
			t.Fatal(err)
		}
		roots, asked := NewRoots(), 0
		b := NewPeerIssued(PeerConfig{TLS: s, Ring: roots, Log: slog.New(slog.DiscardHandler)})
		b.ask = func(_ context.Context, state *keyring.State) (*caserve.PeerCertificate, error) {
			asked++
			by := map[bool]*issue.Authority{true: first, false: second}[state.Bundle[0].Equal(first.Certificate)]
			pair, err := issue.Serving(by, issue.ServingRequest{Names: []string{"localhost"}}, issue.Policy{}, time.Now(), nil)
			return &caserve.PeerCertificate{Certificate: pair, Peer: "peer:15012"}, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = b.Run(ctx) }()
		check := func(asks int, by *issue.Authority) {
			t.Helper()
			synctest.Wait()
			pair, err := s.Certificate(roots.State(), time.Now())
			switch {
			case asked != asks:
				t.Fatalf("asked %d times, want %d", asked, asks)
			case by == nil && !errors.Is(err, errNoRoots):
				t.Errorf("before the roots are known: %v", err)
			case by != nil && (err != nil || pair.Leaf.CheckSignatureFrom(by.Certificate) != nil):
				t.Errorf("the certificate is not of %v: %v", by.Certificate.Subject, err)
			}
		}
		check(0, nil)
		roots.Use([]*x509.Certificate{first.Certificate})
		check(1, first)
		roots.Use(nil)
		roots.Use([]*x509.Certificate{first.Certificate})
		check(1, first)
		roots.Use([]*x509.Certificate{second.Certificate, first.Certificate})
		check(2, second)
	})
}
