// Package callers says who the callers of this process are, on both of its gRPC addresses and for both of its services. Every process has the
// same rules, whether it follows a keyring or serves TLS with an operator's files (issue 12, item 2): the certificate of the connection
// counts, then a token of Kubernetes' issuer (--token-issuer, or that of the cluster's API server) or of our own (embedded default), both of the trust domain of this mesh or an
// alias of it.
//
// Owns: the chain of authenticators, the count of each identity's connections, and the connections themselves, which end with their
// caller's right.  Reads: certificates and tokens, by ca/attest; ends of
// credentials, by ca/expiry.  Never: says what an identity may do.
package callers

import (
	"cmp"
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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/expiry"
	"navarch.io/navarch/cmd/internal/preauth"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// connectionsOfWorkload is how many connections one proxy needs at most: for streams, certificates and questions, and as many again
// while it reconnects.
const connectionsOfWorkload = 16

// limitsOfSource are the limits of an address whose clients show no credential: of all proxies of a large node, or of a gateway.
var limitsOfSource = budget.Limits{Workload: 16384, Least: 16384, Messages: 256 << 20, MessagesPerCredential: 256 << 20, Work: 1e9, WorkInAll: 1e9}

// Config is what callers are told apart by; fields are named after the flags of navarchd.
type Config struct {
	TrustDomain string
	Audiences   []string // of tokens
	TokenIssuer string   // empty: the one that is found, see Found; where there is neither, no tokens of Kubernetes are verified
	TokenKeys   string
	Cluster     string // whose the tokens of TokenIssuer are, and those of calls that name no cluster
	// Remote is the issuer of another cluster's tokens (attest.TokensConfig); nil: there are none.
	Remote func(cluster string) (attest.TokenIssuer, bool)
	// Found is where issuer and keys of the cluster come from where TokenIssuer is empty (KeysConfig.Ask); its Ask is nil: nowhere.
	Found attest.KeysConfig
	// Reviewer is asked about tokens of other issuers, and while keys cannot be had; nil: nobody is.
	Reviewer   attest.Reviewer
	DataDir    string // whose own issuer's tokens are verified; empty: there is none
	Required   bool   // XDS_AUTH: a stream over TLS needs a credential
	MaxMessage int    // the longest message that is taken, bytes
	Log        *slog.Logger
	Now        func() time.Time // by which tokens are verified
	// Aliases are of the trust domain; Workloads says which workloads an identity has (budget.Config.Workloads).
	Aliases   func() []spiffeid.TrustDomain
	Foreign   bool // another CA signs certificates (attest.Certificates.Foreign)
	Workloads func(identity string) map[netip.Addr]struct{}
	// Revoked says whether what a caller showed is revoked, as far as this process knows; nil: nothing is.
	Revoked func(attest.Caller) bool
	// Gone says why a caller's Pod or service account is not there any more; nil: nobody knows.
	Gone func(attest.Caller) error
	// Connections counts those of each identity; nil: a ledger of its own.
	Connections *budget.Ledger
}

// Callers has these rules.
type Callers struct {
	all      attest.Authenticator // it refuses whose Pod or service account is gone
	certs    *attest.Certificates // of all
	tokens   attest.Authenticator // of all, those alone that count for tokens; nil: none do
	keys     []*attest.Keys       // of token issuers, kept fresh by tasks
	required bool                 // XDS_AUTH: a stream over TLS needs a credential
	// revoked says whether what a caller showed is revoked; nil: nothing is.
	revoked func(attest.Caller) bool
	gone    func(attest.Caller) error // why a caller's Pod or service account is not there any more
	// remote says whether a cluster other than cluster is one of the mesh; nil: none is.
	remote  func(cluster string) (attest.TokenIssuer, bool)
	cluster string
	expiry  *expiry.Expiry
	// connections are those of each identity, on all addresses; sources those of each address, of callers that have none (plain text).
	connections, sources *budget.Ledger
	clients              *obs.Sampled
	open                 open
}

// New makes them. Errors name flags.
func New(c Config) (*Callers, error) {
	domain, err := spiffeid.TrustDomainFromString(c.TrustDomain)
	if err != nil {
		return nil, fmt.Errorf("--trust-domain: %w", err)
	}
	k := &Callers{required: c.Required, revoked: c.Revoked, remote: c.Remote, cluster: c.Cluster, expiry: expiry.New(), connections: c.Connections,
		sources: budget.New(budget.Config{Limits: limitsOfSource}), clients: obs.NewSampled(c.Log)}
	if k.connections == nil {
		k.connections = budget.New(budget.Config{Workloads: c.Workloads,
			Limits: budget.Limits{Workload: connectionsOfWorkload, MessagesPerCredential: max(4*c.MaxMessage, 16<<20)}}) // four of the largest
	}
	if k.tokens, k.keys, err = c.tokens(domain); err != nil {
		return nil, err
	}
	if k.gone = c.Gone; k.gone == nil {
		k.gone = func(attest.Caller) error { return nil }
	}
	k.certs = &attest.Certificates{TrustDomain: domain, Aliases: c.Aliases, Foreign: c.Foreign}
	chain := []attest.Authenticator{living{k.certs, k.gone}}
	if k.tokens != nil {
		k.tokens = living{k.tokens, k.gone} // each time, however long a token has been known
		chain = append(chain, k.tokens)
	}
	k.all = k.expiry.Noting(attest.Chain(chain...))
	return k, nil
}

// Tasks keep the keys of token issuers fresh.
func (k *Callers) Tasks() (tasks []loop.Task) {
	for i, keys := range k.keys {
		tasks = append(tasks, loop.Task{Name: fmt.Sprintf("token keys %d", i), Run: keys.Run})
	}
	return tasks
}

// Gauges sets the metrics that are read off callers, as of now.
func (k *Callers) Gauges(now time.Time) {
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

// Authenticate says who an xDS stream belongs to: nobody on plain text, and on the secure address whoever a certificate
// or a token names; no credential there is refused (XDS_AUTH). The connection of a stream that is not refused counts as
// authenticated.
func (k *Callers) Authenticate(ctx context.Context) (who attest.Caller, err error) {
	defer func() {
		if err == nil {
			err = k.accept(ctx, who)
		}
	}()
	if !OverTLS(ctx) {
		return attest.Caller{}, nil
	}
	who, err = k.all.Authenticate(ctx)
	if errors.Is(err, attest.ErrNone) && !k.required {
		return attest.Caller{}, nil
	}
	if err == nil {
		err = k.withdrawn(who)
	}
	if err != nil {
		return attest.Caller{}, err
	}
	return who, nil
}

// Refused says why somebody who was authenticated is served no longer; nil: they are.
func (k *Callers) Refused(who attest.Caller) error {
	if err := k.withdrawn(who); err != nil {
		return err
	}
	return k.gone(who)
}

// withdrawn says why the credential of somebody counts no more, whose Pod and service account are there: all has found that out.
func (k *Callers) withdrawn(who attest.Caller) error {
	if k.revoked != nil && k.revoked(who) {
		return fmt.Errorf("%s: its certificate or its identity is revoked", who.ID)
	}
	if who.By == attest.ByToken && k.remote != nil && who.Cluster != "" && who.Cluster != k.cluster {
		if _, is := k.remote(who.Cluster); !is {
			return fmt.Errorf("%s: by a token of cluster %s, which is none of the mesh's any more", who.ID, who.Cluster)
		}
	}
	return k.expiry.Refused(who, time.Now())
}

// MayHaveKeys says whether somebody may have private keys that they have not asked for before, and if not, whether they should
// come again with a newer credential, because there are some to be had.
func (k *Callers) MayHaveKeys(who attest.Caller) (may, again bool) {
	ended, issuing := k.expiry.Ended(who, time.Now())
	return !ended, !issuing.IsZero()
}

// Admits says whether the certificate that a client has shown in its handshake, and that was verified there, is a credential.
func (k *Callers) Admits(state tls.ConnectionState, from net.Addr) (preauth.Assign, bool) {
	who, err := k.certs.Verify(state.VerifiedChains[0][0])
	return k.assign(who, from), err == nil && k.Refused(who) == nil
}

// accept has the connection of a call whose caller is not refused count as authenticated, and as one of the caller's identity. The
// error is attest.ErrUnavailable: it has too many.
func (k *Callers) accept(ctx context.Context, who attest.Caller) error {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	if err := preauth.Authenticated(ctx, k.assign(who, p.Addr)); err != nil {
		obs.Bounded.WithLabelValues("connections").Inc()
		return fmt.Errorf("%w: connections of %s: %w", attest.ErrUnavailable, cmp.Or(who.ID.String(), p.Addr.String()), err)
	}
	return nil
}

// Expiry is what becomes of streams whose credential has ended.
func (k *Callers) Expiry() *expiry.Expiry { return k.expiry }

// Tokens verifies tokens alone; nil: none count.
func (k *Callers) Tokens() attest.Authenticator { return k.tokens }

// Required says whether a stream over TLS needs a credential.
func (k *Callers) Required() bool { return k.required }

// OverTLS says whether a call came over TLS.
func OverTLS(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	_, ok = p.AuthInfo.(credentials.TLSInfo)
	return ok
}

// living refuses callers whose Pod or service account was deleted.
type living struct {
	attest.Authenticator
	gone func(attest.Caller) error
}

// Authenticate implements attest.Authenticator.
func (l living) Authenticate(ctx context.Context) (attest.Caller, error) {
	who, err := l.Authenticator.Authenticate(ctx)
	if err == nil {
		err = l.gone(who)
	}
	if err != nil {
		return attest.Caller{}, err
	}
	return who, nil
}

// OfCalls authenticates the CA's calls: the connection of whoever is not refused counts as authenticated.
func (k *Callers) OfCalls() attest.Authenticator { return ofCalls{k} }

type ofCalls struct{ *Callers }

// Authenticate implements attest.Authenticator.
func (k ofCalls) Authenticate(ctx context.Context) (attest.Caller, error) {
	who, err := k.all.Authenticate(ctx)
	if err == nil && k.withdrawn(who) == nil {
		err = k.accept(ctx, who)
	}
	return who, err
}

// tokens verifies tokens of Kubernetes' issuer and of our own (embedded default); nil where there is
// neither. Whoever asks runs the keys.
func (c Config) tokens(domain spiffeid.TrustDomain) (attest.Authenticator, []*attest.Keys, error) {
	conf := attest.TokensConfig{TrustDomain: domain, Audiences: c.Audiences, Cluster: c.Cluster, Remote: c.Remote, Reviewer: c.Reviewer, Now: c.Now}
	var fresh []*attest.Keys
	if c.TokenIssuer != "" || c.Found.Ask != nil {
		from := attest.KeysConfig{Log: c.Log}
		switch {
		case c.TokenIssuer == "":
			from = c.Found
			from.Log = c.Log
		case c.TokenKeys == "":
			from.Discovery = c.TokenIssuer
		case strings.Contains(c.TokenKeys, "://"):
			from.URL = c.TokenKeys
		default:
			from.File = c.TokenKeys
		}
		keys, err := attest.NewKeys(from)
		if err != nil {
			return nil, nil, fmt.Errorf("--token-issuer, --token-keys: %w", err)
		}
		fresh = append(fresh, keys)
		conf.Issuers = append(conf.Issuers, attest.TokenIssuer{Name: c.TokenIssuer, Cluster: c.Cluster, Keys: keys})
	}
	if c.DataDir != "" {
		own, err := attest.Local(c.DataDir)
		if err != nil {
			return nil, nil, err
		}
		verifier, err := own.Verifier()
		if err != nil {
			return nil, nil, err
		}
		conf.Issuers = append(conf.Issuers, verifier)
	}
	if len(conf.Issuers) == 0 && conf.Reviewer == nil {
		return nil, nil, nil
	}
	tokens, err := attest.NewTokens(conf)
	if err != nil {
		return nil, nil, err
	}
	return tokens, fresh, nil
}
