package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
)

// over is the context of a call over TLS, with a client certificate of these names (none: without one) and a token.
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

// A process without a keyring tells callers by the same rules as one with it.
func TestCallersWithoutKeyring(t *testing.T) {
	c := &config{dataDir: t.TempDir(), trustDomain: "cluster.local", env: environment{audiences: []string{"istio-ca"}, xdsAuth: true}}
	aliases := func() []spiffeid.TrustDomain {
		return []spiffeid.TrustDomain{spiffeid.RequireTrustDomainFromString("old.example")}
	}
	k, err := newCallers(c, aliases, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := attest.Local(c.dataDir)
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
		if who, err := k.authenticate(one.ctx); who.ID.String() != one.want || !errors.Is(err, one.err) {
			t.Errorf("%s: %q, %v", name, who.ID, err)
		}
	}
	k.revoked = func(who attest.Caller) bool { return who.Serial == "7" }
	if _, err := k.authenticate(over(t, "", own)); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked certificate: %v", err)
	}
	if who, err := k.authenticate(over(t, token)); who.ID.String() != own || err != nil {
		t.Errorf("a token of the same identity: %q, %v", who.ID, err)
	}
	k.required = false
	if who, err := k.authenticate(over(t, "")); !who.ID.IsZero() || err != nil {
		t.Errorf("XDS_AUTH=false: %q, %v", who.ID, err)
	}
	if _, err := k.authenticate(over(t, "", evil)); !errors.Is(err, attest.ErrIdentity) {
		t.Errorf("XDS_AUTH=false, and a credential that is not accepted: %v", err)
	}
}

// A process that could verify no credential, and wants one, does not start; nor does one whose file for verifying has no
// address to be used at.
func TestCredentialsCanBeVerified(t *testing.T) {
	files := config{roles: []string{"xds"}, secureGRPCAddr: ":15012", tlsCert: "c", tlsKey: "k", env: environment{xdsAuth: true}}
	for name, one := range map[string]struct {
		change func(*config)
		wants  []string // flags that are named; none: it starts
	}{
		"none":             {func(*config) {}, []string{"--secure-grpc-addr", "--tls-cert", "--tls-client-ca", "--token-issuer", "--kek", "XDS_AUTH=false"}},
		"certificates":     {func(c *config) { c.clientCA = "ca" }, nil},
		"tokens":           {func(c *config) { c.tokenIssuer = "i" }, nil},
		"own tokens":       {func(c *config) { c.dataDir = "d" }, nil},
		"keyring":          {func(c *config) { c.kek = "file:k" }, nil},
		"open":             {func(c *config) { c.env.xdsAuth = false }, nil},
		"no address":       {func(c *config) { c.secureGRPCAddr = "" }, nil},
		"no certificate":   {func(c *config) { c.tlsCert, c.tlsKey = "", "" }, nil},
		"no xDS":           {func(c *config) { c.roles = []string{"ingest"} }, nil},
		"no pair":          {func(c *config) { c.clientCA, c.tlsCert, c.kek = "ca", "", "file:k" }, []string{"--tls-client-ca", "--tls-cert", "--tls-key"}},
		"CA to no address": {func(c *config) { c.clientCA, c.secureGRPCAddr = "ca", "" }, []string{"--tls-client-ca", "--secure-grpc-addr"}},
	} {
		c, said := files, []string{}
		one.change(&c)
		c.checkCredentials(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if text := strings.Join(said, "; "); (text == "") != (one.wants == nil) {
			t.Errorf("%s: %s", name, text)
		} else {
			for _, flag := range one.wants {
				if !strings.Contains(text, flag) {
					t.Errorf("%s: %q does not name %s", name, text, flag)
				}
			}
		}
	}
}
