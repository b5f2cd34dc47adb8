package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
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

// limitsOfSource are the limits of an address whose clients show no credential: of all proxies of a large node, or of a gateway.
var limitsOfSource = budget.Limits{Workload: 16384, Least: 16384, Messages: 256 << 20, MessagesPerCredential: 256 << 20}

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
	// connections are those of each identity, on all addresses; sources those of each address, of callers that have none (plain text).
	connections, sources *budget.Ledger
	clients              *obs.Sampled
}

// newCallers makes it; aliases are of the trust domain, known says which workloads an identity has (budget.Config.Workloads). Errors
// name flags.
func newCallers(c *config, aliases func() []spiffeid.TrustDomain, known func(string) map[netip.Addr]struct{}, log *slog.Logger) (*callers, error) {
	domain, err := spiffeid.TrustDomainFromString(c.trustDomain)
	if err != nil {
		return nil, fmt.Errorf("--trust-domain: %w", err)
	}
	k := &callers{required: c.env.xdsAuth, expiry: newExpiry(),
		connections: budget.New(budget.Config{Workloads: known,
			Limits: budget.Limits{Workload: connectionsOfWorkload, MessagesPerCredential: max(4*c.env.maxRecvSize, 16<<20)}}), // four of the largest
		sources: budget.New(budget.Config{Limits: limitsOfSource}), clients: obs.NewSampled(log)}
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
	k.sources.Tick()
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
		return fmt.Errorf("%w: connections of %s: %w", attest.ErrUnavailable, cmp.Or(who.ID.String(), p.Addr.String()), err)
	}
	return nil
}

// claim counts a connection for an identity, or for the address that it comes from where the caller has shown none.
func (k *callers) claim(who attest.Caller, from net.Addr) preauth.Claim {
	return func(end func()) (preauth.Owner, error) {
		ledger, holder := k.connections, serve.Holder(who, from.String())
		if who.ID.IsZero() {
			ledger, holder.Identity = k.sources, "no credential, from "+holder.From.String()
		}
		return ledger.Enter(holder, func(why error) {
			what := "connections"
			if errors.Is(why, budget.ErrMessages) {
				what = "messages"
			}
			obs.Bounded.WithLabelValues(what).Inc()
			k.clients.Warn("a connection is closed: its identity has too much", what, obs.KeyIdentity, holder.Identity, obs.KeyPeer, from.String(), obs.KeyError, why)
			end()
		})
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
