package callers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/budget"
)

// over returns the context of a call over TLS, with a client certificate of these names (none: without one) and a
// token.
func over(t *testing.T, token string, names ...string) context.Context {
	t.Helper()
	state := tls.ConnectionState{}
	if len(names) > 0 {
		leaf := &x509.Certificate{SerialNumber: big.NewInt(7), NotAfter: time.Now().Add(time.Hour)}
		for _, name := range names {
			u, err := url.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			leaf.URIs = append(leaf.URIs, u)
		}
		state.PeerCertificates = []*x509.Certificate{leaf}
		state.VerifiedChains = [][]*x509.Certificate{state.PeerCertificates}
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
	if token != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{"authorization": {"Bearer " + token}})
	}
	return ctx
}

// A process without a keyring identifies callers by the same rules as one with it.
func TestCallersWithoutKeyring(t *testing.T) {
	c := Config{DataDir: t.TempDir(), TrustDomain: "cluster.local", Audiences: []string{"istio-ca"}, Required: true, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	c.Aliases = func() []spiffeid.TrustDomain {
		return []spiffeid.TrustDomain{spiffeid.RequireTrustDomainFromString("old.example")}
	}
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := attest.Local(c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := issuer.Mint("shop", "client", "istio-ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	wrong, _, err := issuer.Mint("shop", "client", "vault", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	const own, old, evil = "spiffe://cluster.local/ns/shop/sa/client", "spiffe://old.example/ns/shop/sa/client", "spiffe://evil.example/ns/shop/sa/client"
	for name, one := range map[string]struct {
		ctx  context.Context
		want string
		err  error
	}{
		"plain text":              {t.Context(), "", nil},
		"nothing":                 {over(t, ""), "", attest.ErrNone},
		"certificate":             {over(t, "", own), own, nil},
		"alias":                   {over(t, "", old), own, nil},
		"another trust domain":    {over(t, "", evil), "", attest.ErrIdentity},
		"two names":               {over(t, "", own, evil), "", attest.ErrIdentity},
		"no name of a workload":   {over(t, "", "spiffe://cluster.local/x"), "", attest.ErrIdentity},
		"bad one and a token":     {over(t, token, evil), "", attest.ErrIdentity},
		"token":                   {over(t, token), own, nil},
		"token of other audience": {over(t, wrong), "", attest.ErrAudience},
		"no token":                {over(t, "x.y.z"), "", attest.ErrMalformed},
	} {
		if who, err := k.Authenticate(one.ctx); who.ID.String() != one.want || !errors.Is(err, one.err) {
			t.Errorf("%s: %q, %v", name, who.ID, err)
		}
	}
	k.revoked = func(who attest.Caller) bool { return who.Serial == "7" }
	serial := attest.Caller{ID: spiffeid.RequireFromString(own), Serial: "7"}
	if owner, err := k.assign(serial, &net.TCPAddr{})(func() {}); owner != nil || err == nil || len(k.open.all) != 0 {
		t.Errorf("a connection of somebody who was revoked after they were asked for: %v, %d connections", err, len(k.open.all))
	}
	if _, err := k.Authenticate(over(t, "", own)); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked certificate: %v", err)
	}
	if who, err := k.Authenticate(over(t, token)); who.ID.String() != own || err != nil {
		t.Errorf("a token of the same identity: %q, %v", who.ID, err)
	}
	k.required = false
	if who, err := k.Authenticate(over(t, "")); !who.ID.IsZero() || err != nil {
		t.Errorf("XDS_AUTH=false: %q, %v", who.ID, err)
	}
	if _, err := k.Authenticate(over(t, "", evil)); !errors.Is(err, attest.ErrIdentity) {
		t.Errorf("XDS_AUTH=false, and a credential that is not accepted: %v", err)
	}
}

// A caller whose Pod was deleted is refused by token and certificate, by both services and in checks of open streams,
// even if its token was verified before.
// Promise: security-workloads.md#tokens
func TestGoneCallers(t *testing.T) {
	var gone error
	asked := 0
	c := Config{DataDir: t.TempDir(), TrustDomain: "cluster.local", Audiences: []string{"istio-ca"}, Required: true, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Gone: func(attest.Caller) error { asked++; return gone }}
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := attest.Local(c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := issuer.Mint("shop", "client", "istio-ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, errors.New("deleted"), nil} {
		gone = want
		for name, ctx := range map[string]context.Context{"token": over(t, token), "certificate": over(t, "", "spiffe://cluster.local/ns/shop/sa/client")} {
			asked = 0
			who, err := k.Authenticate(ctx)
			if !errors.Is(err, want) || (want != nil) != who.ID.IsZero() || asked != 1 {
				t.Errorf("%s, xDS: %v, want %v; asked %d times", name, err, want, asked)
			}
			if who, err = k.OfCalls().Authenticate(ctx); !errors.Is(err, want) || (want != nil) != who.ID.IsZero() {
				t.Errorf("%s, CA: %v, want %v", name, err, want)
			}
		}
		if _, err := k.Tokens().Authenticate(over(t, token)); !errors.Is(err, want) {
			t.Errorf("tokens alone: %v, want %v", err, want)
		}
		if err := k.Refused(attest.Caller{}); !errors.Is(err, want) {
			t.Errorf("a stream that stands: %v, want %v", err, want)
		}
	}
}

// A stream that was opened with a token of another cluster is refused once that cluster is no longer in the mesh.
// Streams with a certificate that was issued for such a token continue, and so do those of remaining clusters.
func TestCallersOfClusterThatWent(t *testing.T) {
	named := map[string]bool{"west": true, "east": true}
	k, err := New(Config{DataDir: t.TempDir(), TrustDomain: "cluster.local", Cluster: "home", Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Remote: func(cluster string) (attest.TokenIssuer, bool) { return attest.TokenIssuer{}, named[cluster] }})
	if err != nil {
		t.Fatal(err)
	}
	callers := map[string]attest.Caller{"token": {By: attest.ByToken, Cluster: "west"}, "certificate": {By: attest.ByCertificate, Cluster: "west", Serial: "1"},
		"another cluster": {By: attest.ByToken, Cluster: "east"}, "the config cluster": {By: attest.ByToken, Cluster: "home"}, "no cluster": {By: attest.ByToken}}
	for _, there := range []bool{true, false, true} {
		named["west"] = there
		for name, who := range callers {
			if err := k.Refused(who); (err != nil) != (name == "token" && !there) {
				t.Errorf("%s, while the cluster is named: %v: %v", name, there, err)
			}
		}
	}
}

// A Pod has 16 connections, and a further one ends the oldest. An address whose clients present no credential has at
// most 16,384.
// Promise: security-connections.md#what-such-a-client-can-still-do, security-limits.md#streams-connections-and-messages
func TestEdgesOfConnections(t *testing.T) {
	k, err := New(Config{DataDir: t.TempDir(), TrustDomain: "cluster.local", Audiences: []string{"istio-ca"}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	open := func(who attest.Caller, n int) (err error) {
		assign := k.assign(who, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1})
		for ; n > 0 && err == nil; n-- {
			_, err = assign(func() { ended++ })
		}
		return err
	}
	pod := attest.Caller{ID: spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/web"), Pod: "web-1", PodUID: "u"}
	for i, want := range []int{0, 1} {
		if err := open(pod, 16-15*i); err != nil || ended != want {
			t.Errorf("%d connections: %d ended, %v", 16+i, ended, err)
		}
	}
	if err := open(attest.Caller{}, 16384); err != nil {
		t.Error(err)
	}
	if err := open(attest.Caller{}, 1); !errors.Is(err, budget.ErrExhausted) || ended != 1 {
		t.Errorf("one more: %v, %d ended", err, ended)
	}
}
