package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/cmd/internal/preauth"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// connectionsOfWorkload is how many connections one proxy needs at most: for streams, certificates and questions, and as many again
// while it reconnects.
const connectionsOfWorkload = 16

// callers says who the callers of this process are. Every process has the same rules, whether it follows a keyring or serves
// TLS with an operator's files (issue 12, item 2): the certificate of the connection counts, then a token of Kubernetes' issuer
// (--token-issuer) or of our own (embedded default), both of the trust domain of this mesh or an alias of it.
type callers struct {
	all      attest.Authenticator
	certs    *attest.Certificates // of all
	tokens   attest.Authenticator // of all, those alone that count for tokens; nil: none do
	keys     []*attest.Keys       // of token issuers, kept fresh by tasks
	required bool                 // XDS_AUTH: a stream over TLS needs a credential
	// revoked says whether what a caller showed is revoked; nil: this process does not follow the keyring, and knows of none.
	revoked func(attest.Caller) bool
	expiry  *expiry
	// connections are those of each identity, on all addresses.
	connections *budget.Ledger
}

// newCallers makes it; aliases are of the trust domain, known says which workloads an identity has (budget.Config.Workloads). Errors
// name flags.
func newCallers(c *config, aliases func() []spiffeid.TrustDomain, known func(string) map[netip.Addr]struct{}, log *slog.Logger) (*callers, error) {
	domain, err := spiffeid.TrustDomainFromString(c.trustDomain)
	if err != nil {
		return nil, fmt.Errorf("--trust-domain: %w", err)
	}
	k := &callers{required: c.env.xdsAuth, expiry: newExpiry(),
		connections: budget.New(budget.Config{Workloads: known, Limits: budget.Limits{Workload: connectionsOfWorkload}})}
	if k.tokens, k.keys, err = c.tokens(domain, log); err != nil {
		return nil, err
	}
	k.certs = &attest.Certificates{TrustDomain: domain, Aliases: aliases}
	chain := []attest.Authenticator{k.certs}
	if k.tokens != nil {
		chain = append(chain, k.tokens)
	}
	k.all = noting{attest.Chain(chain...), k.expiry}
	return k, nil
}

func (k *callers) tasks() (tasks []loop.Task) {
	for i, keys := range k.keys {
		tasks = append(tasks, loop.Task{Name: fmt.Sprintf("token keys %d", i), Run: keys.Run})
	}
	return tasks
}

func (k *callers) gauges(now time.Time) {
	k.connections.Tick()
	age := 0.0
	for _, keys := range k.keys {
		if at := keys.Fetched(); !at.IsZero() {
			age = max(age, now.Sub(at).Seconds())
		}
	}
	obs.TokenKeysAge.Set(age)
}

// authenticate says who an xDS stream belongs to: nobody on plain text, and on the secure address whoever a certificate
// or a token names; no credential there is refused (XDS_AUTH). The connection of a stream that is not refused counts as
// authenticated.
func (k *callers) authenticate(ctx context.Context) (who attest.Caller, err error) {
	defer func() {
		if err == nil {
			err = k.accept(ctx, who)
		}
	}()
	if !secure(ctx) {
		return attest.Caller{}, nil
	}
	who, err = k.all.Authenticate(ctx)
	if errors.Is(err, attest.ErrNone) && !k.required {
		return attest.Caller{}, nil
	}
	if err == nil {
		err = k.refused(who)
	}
	if err != nil {
		return attest.Caller{}, err
	}
	return who, nil
}

// refused says why somebody who was authenticated is served no longer; nil: they are.
func (k *callers) refused(who attest.Caller) error {
	if k.revoked != nil && k.revoked(who) {
		return fmt.Errorf("%s: its certificate or its identity is revoked", who.ID)
	}
	return k.expiry.refused(who, time.Now())
}

// mayHaveKeys says whether somebody may have private keys that they have not asked for before, and if not, whether they should
// come again with a newer credential, because there are some to be had.
func (k *callers) mayHaveKeys(who attest.Caller) (may, again bool) {
	ended, issuing := k.expiry.ended(who, time.Now())
	return !ended, !issuing.IsZero()
}

// admits says whether the certificate that a client has shown in its handshake, and that was verified there, is a credential.
func (k *callers) admits(state tls.ConnectionState, from net.Addr) (preauth.Claim, bool) {
	who, err := k.certs.Verify(state.VerifiedChains[0][0])
	return k.claim(who, from), err == nil && k.refused(who) == nil
}

// accept has the connection of a call whose caller is not refused count as authenticated, and as one of the caller's identity. The
// error is attest.ErrUnavailable: it has too many.
func (k *callers) accept(ctx context.Context, who attest.Caller) error {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	if err := preauth.Authenticated(ctx, k.claim(who, p.Addr)); err != nil {
		obs.Bounded.WithLabelValues("connections").Inc()
		return fmt.Errorf("%w: connections of %s: %w", attest.ErrUnavailable, who.ID, err)
	}
	return nil
}

// claim counts a connection for an identity; nil: for nobody.
func (k *callers) claim(who attest.Caller, from net.Addr) preauth.Claim {
	if who.ID.IsZero() {
		return nil
	}
	return func(end func()) (leave func(), err error) {
		entry, err := k.connections.Enter(serve.Holder(who, from.String()), func(error) {
			obs.Bounded.WithLabelValues("connections").Inc()
			end()
		})
		return entry.Leave, err
	}
}

// ofCalls is callers.all for the CA's calls: the connection of who is not refused counts as authenticated.
type ofCalls struct{ *callers }

// Authenticate implements attest.Authenticator.
func (k ofCalls) Authenticate(ctx context.Context) (attest.Caller, error) {
	who, err := k.all.Authenticate(ctx)
	if err == nil && k.refused(who) == nil {
		err = k.accept(ctx, who)
	}
	return who, err
}

// tokens verifies tokens of Kubernetes' issuer (--token-issuer) and of our own (embedded default); nil where there is
// neither. Whoever asks runs the keys.
func (c *config) tokens(domain spiffeid.TrustDomain, log *slog.Logger) (attest.Authenticator, []*attest.Keys, error) {
	conf := attest.TokensConfig{TrustDomain: domain, Audiences: c.env.audiences, Now: now}
	var fresh []*attest.Keys
	if c.tokenIssuer != "" {
		from := attest.KeysConfig{Log: log}
		switch {
		case c.tokenKeys == "":
			from.Discovery = c.tokenIssuer
		case strings.Contains(c.tokenKeys, "://"):
			from.URL = c.tokenKeys
		default:
			from.File = c.tokenKeys
		}
		keys, err := attest.NewKeys(from)
		if err != nil {
			return nil, nil, fmt.Errorf("--token-issuer, --token-keys: %w", err)
		}
		fresh = append(fresh, keys)
		conf.Issuers = append(conf.Issuers, attest.TokenIssuer{Name: c.tokenIssuer, Cluster: c.cluster, Keys: keys})
	}
	if c.dataDir != "" {
		own, err := attest.Local(c.dataDir)
		if err != nil {
			return nil, nil, err
		}
		verifier, err := own.Verifier()
		if err != nil {
			return nil, nil, err
		}
		conf.Issuers = append(conf.Issuers, verifier)
	}
	if len(conf.Issuers) == 0 {
		return nil, nil, nil
	}
	tokens, err := attest.NewTokens(conf)
	if err != nil {
		return nil, nil, err
	}
	return tokens, fresh, nil
}
