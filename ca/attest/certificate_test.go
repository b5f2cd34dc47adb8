package attest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

func leaf(change func(*x509.Certificate), names ...string) *x509.Certificate {
	t := &x509.Certificate{SerialNumber: big.NewInt(0xabc), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), BasicConstraintsValid: true}
	for _, n := range names {
		t.URIs = append(t.URIs, must(url.Parse(n)))
	}
	if change != nil {
		change(t)
	}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, t, t, ecKey().Public(), ecKey()))))
}

func connected(ctx context.Context, verified bool, certs ...*x509.Certificate) context.Context {
	state := tls.ConnectionState{PeerCertificates: certs}
	if verified && len(certs) != 0 {
		state.VerifiedChains = [][]*x509.Certificate{certs}
	}
	return peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
}

func certificates() *Certificates {
	return &Certificates{TrustDomain: td, Aliases: func() []spiffeid.TrustDomain {
		return []spiffeid.TrustDomain{spiffeid.RequireTrustDomainFromString("old.example")}
	}, Now: clock}
}

func TestCertificateAccepted(t *testing.T) {
	want := Caller{ID: spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/web"), Namespace: "shop", ServiceAccount: "web", By: ByCertificate, Serial: "abc",
		NotBefore: leaf(nil, "spiffe://cluster.local").NotBefore, NotAfter: leaf(nil, "spiffe://cluster.local").NotAfter}
	for _, name := range []string{"spiffe://cluster.local/ns/shop/sa/web", "spiffe://old.example/ns/shop/sa/web"} {
		got, err := certificates().Authenticate(connected(t.Context(), true, leaf(nil, name)))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestCertificateRefused(t *testing.T) {
	web := "spiffe://cluster.local/ns/shop/sa/web"
	ctx := t.Context()
	tests := map[string]struct {
		ctx  context.Context
		want error
		says string
	}{
		"no peer":            {ctx, ErrNone, ""},
		"plain text":         {peer.NewContext(ctx, &peer.Peer{}), ErrNone, ""},
		"no certificate":     {connected(ctx, true), ErrNone, "no client certificate"},
		"not verified":       {connected(ctx, false, leaf(nil, web)), ErrDenied, "not verified"},
		"expired since":      {connected(ctx, true, leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }, web)), ErrExpired, "11:59:59Z"},
		"CA":                 {connected(ctx, true, leaf(func(c *x509.Certificate) { c.IsCA = true }, web)), ErrIdentity, "CA's"},
		"no URI":             {connected(ctx, true, leaf(nil)), ErrIdentity, "0 URI names"},
		"two":                {connected(ctx, true, leaf(nil, web, web+"2")), ErrIdentity, "2 URI names"},
		"not SPIFFE":         {connected(ctx, true, leaf(nil, "https://cluster.local/ns/shop/sa/web")), ErrIdentity, "scheme"},
		"other trust domain": {connected(ctx, true, leaf(nil, "spiffe://evil/ns/shop/sa/web")), ErrIdentity, "trust domain evil"},
		"trust domain alone": {connected(ctx, true, leaf(nil, "spiffe://cluster.local")), ErrIdentity, "path"},
		"short path":         {connected(ctx, true, leaf(nil, "spiffe://cluster.local/ns/shop")), ErrIdentity, "path"},
		"long path":          {connected(ctx, true, leaf(nil, web+"/x")), ErrIdentity, "path"},
		"other path":         {connected(ctx, true, leaf(nil, "spiffe://cluster.local/ns/shop/pod/web")), ErrIdentity, "path"},
		"query":              {connected(ctx, true, leaf(nil, web+"?x=y")), ErrIdentity, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := certificates().Authenticate(tt.ctx)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) || got != (Caller{}) {
				t.Errorf("%+v, %v", got, err)
			}
			if errors.Is(err, ErrNone) == errors.Is(err, ErrDenied) {
				t.Errorf("neither or both: %v", err)
			}
		})
	}
}

type fixed struct {
	caller Caller
	err    error
}

func (f fixed) Authenticate(context.Context) (Caller, error) { return f.caller, f.err }

func TestChain(t *testing.T) {
	a, none := fixed{caller: Caller{Namespace: "a"}}, fixed{err: ErrNone}
	denied, away := fixed{err: ErrExpired}, fixed{err: ErrUnavailable}
	tests := map[string]struct {
		chain Authenticator
		want  error // nil: a's answer
	}{
		"first":                {Chain(a, denied), nil},
		"second":               {Chain(none, a), nil},
		"refused is final":     {Chain(none, denied, a), ErrExpired},
		"unavailable is final": {Chain(away, a), ErrUnavailable},
		"all without":          {Chain(none, none), ErrNone},
		"empty":                {Chain(), ErrNone},
		"nested":               {Chain(Chain(none), a), nil},
	}
	for name, tt := range tests {
		got, err := tt.chain.Authenticate(t.Context())
		if !errors.Is(err, tt.want) || tt.want == nil && got != a.caller {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	ctx := connected(t.Context(), true)
	_, err := Chain(certificates(), verifier(t, static(jwk("e", ecKey())))).Authenticate(ctx)
	if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "client certificate") || !strings.Contains(err.Error(), "bearer token") {
		t.Errorf("what was looked for: %v", err)
	}
}
