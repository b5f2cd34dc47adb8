// Package callers authenticates the callers of xDS and of the CA, on both gRPC addresses of this process. The rules are
// the same in every process. A caller's credential is the certificate of its connection or, without one, a token. A
// token comes from Kubernetes' issuer (--token-issuer, or the issuer of the cluster's API server) or from this
// process's own issuer (Config.DataDir). The caller's identity must be in this mesh's trust domain, or in an alias of
// the trust domain.
//
// Owns: the chain of authenticators, the number of connections of each identity, and the list of open connections.
// Reads: certificates and tokens (with ca/attest), and the expiry of credentials (with ca/expiry).
// Never: decides what an identity may do.
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

// connectionsOfWorkload is the limit of connections for each workload of an identity. A proxy needs connections for
// streams, for certificates and for requests. While it reconnects, it needs twice as many.
const connectionsOfWorkload = 16

// limitsOfSource are the limits of a client address, for connections without a credential. All proxies of a large node
// may connect from one address, and so may all clients behind a gateway.
var limitsOfSource = budget.Limits{Workload: 16384, Least: 16384,
	Messages: 256 << 20, MessagesPerCredential: 256 << 20, Work: 1e9, WorkInAll: 1e9}

// Config configures the authentication. Many fields have the names of navarchd's flags. TrustDomain and Log are
// required. The functions must be safe for concurrent use.
type Config struct {
	TrustDomain string   // of this mesh, for example cluster.local
	Audiences   []string // accepted audiences of tokens; empty: istio-ca
	TokenIssuer string   // issuer of Kubernetes' tokens; empty: the issuer of Found
	TokenKeys   string   // URL or file of the keys of TokenIssuer; empty: found by OpenID discovery at TokenIssuer
	Cluster     string   // name of the cluster of TokenIssuer's tokens, and of calls that name no cluster
	// Remote returns the issuer of another cluster's tokens, and false for a cluster that is not in the mesh
	// (attest.TokensConfig). nil: there are no other clusters. If TokenIssuer, Found.Ask, DataDir and Reviewer are all
	// unset, all tokens are refused, also those of other clusters.
	Remote func(cluster string) (attest.TokenIssuer, bool)
	// Found provides the cluster's issuer and its keys if TokenIssuer is empty. If Found.Ask is nil, it provides
	// nothing. Log replaces Found.Log.
	Found attest.KeysConfig
	// Reviewer verifies tokens by TokenReview, for calls that name Cluster. It verifies tokens of unknown issuers, and
	// all tokens while the keys are unavailable. nil: no reviews.
	Reviewer   attest.Reviewer
	DataDir    string // folder with the key of this process's own token issuer; empty: there is no own issuer
	Required   bool   // XDS_AUTH: a stream over TLS needs a credential
	MaxMessage int    // longest accepted message in bytes
	Log        *slog.Logger
	Now        func() time.Time // for verifying tokens; nil: time.Now
	// Aliases returns the aliases of the trust domain; nil: no aliases.
	Aliases func() []spiffeid.TrustDomain
	Foreign bool // another CA signs certificates (attest.Certificates.Foreign)
	// Workloads returns the addresses of an identity's workloads, which determine the identity's limit of connections
	// (budget.Config.Workloads). nil: no workloads are known.
	Workloads func(identity string) map[netip.Addr]struct{}
	// Revoked reports whether a caller's certificate or identity is revoked; nil: no revocations are known.
	Revoked func(attest.Caller) bool
	// Gone returns an error if a caller's Pod or service account no longer exists. The function may be nil.
	Gone func(attest.Caller) error
	// Connections counts and limits the connections of each identity. nil: New makes a ledger that permits 16
	// connections for each workload.
	Connections *budget.Ledger
}

// Callers authenticates callers by the rules of a Config. It is safe for concurrent use.
type Callers struct {
	all      attest.Authenticator // refuses callers whose Pod or service account is gone
	certs    *attest.Certificates // authenticates by certificate
	tokens   attest.Authenticator // authenticates by token; nil: no tokens are accepted
	keys     []*attest.Keys       // of token issuers, refreshed by Tasks
	required bool                 // XDS_AUTH: a stream over TLS needs a credential
	// revoked reports whether a caller's credential is revoked; nil: no revocations are known.
	revoked func(attest.Caller) bool
	gone    func(attest.Caller) error // returns why a caller's Pod or service account no longer exists
	// remote reports whether another cluster (not the one in the field cluster) belongs to the mesh. nil: there are no
	// other clusters.
	remote  func(cluster string) (attest.TokenIssuer, bool)
	cluster string
	expiry  *expiry.Expiry
	// connections counts the connections of each identity, on all addresses of this process. sources counts the
	// connections without a credential, by the client's address.
	connections, sources *budget.Ledger
	clients              *obs.Sampled
	open                 open
}

// New returns Callers. It sends no request. If DataDir has no key for the own issuer, New creates the key. New fails if
// the trust domain, the token issuer or an audience is invalid. It also fails if the key in DataDir cannot be created,
// read or used. Errors about the trust domain and the token issuer name the flags.
func New(c Config) (*Callers, error) {
	domain, err := spiffeid.TrustDomainFromString(c.TrustDomain)
	if err != nil {
		return nil, fmt.Errorf("--trust-domain: %w", err)
	}
	k := &Callers{required: c.Required, revoked: c.Revoked, remote: c.Remote,
		cluster: c.Cluster, expiry: expiry.New(), connections: c.Connections,
		sources: budget.New(budget.Config{Limits: limitsOfSource}), clients: obs.NewSampled(c.Log)}
	if k.connections == nil {
		k.connections = budget.New(budget.Config{Workloads: c.Workloads,
			// four messages of the largest size
			Limits: budget.Limits{Workload: connectionsOfWorkload, MessagesPerCredential: max(4*c.MaxMessage, 16<<20)}})
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
		k.tokens = living{k.tokens, k.gone} // at each call, even for a remembered token
		chain = append(chain, k.tokens)
	}
	k.all = k.expiry.Noting(attest.Chain(chain...))
	return k, nil
}

// Tasks returns the tasks that refresh the keys of token issuers, one for each issuer with fetched keys. It returns nil
// if there is no such issuer. The caller must run the tasks; without them the keys are missing.
func (k *Callers) Tasks() (tasks []loop.Task) {
	for i, keys := range k.keys {
		tasks = append(tasks, loop.Task{Name: fmt.Sprintf("token keys %d", i), Run: keys.Run})
	}
	return tasks
}

// Gauges sets the metric for the age of the oldest token keys at the time now, in seconds. The metric is 0 if no keys
// were fetched. Gauges also removes unused credentials from the counts of connections. Call it about every second.
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

// Authenticate authenticates an xDS stream by the context of its call. Over TLS, it identifies the caller by
// certificate or token. For plain text it returns the zero Caller, without an identity. It does the same for TLS
// without a credential, unless Config.Required is set. The connection of an accepted stream counts as authenticated.
//
// The error is attest.ErrNone for a missing credential. It is another error for an invalid, revoked or expired
// credential, and for a caller whose cluster, Pod or service account is gone. attest.ErrUnavailable means that the
// credential cannot be verified now, or that too many connections are open. A connection counts for the caller's
// identity or, without an identity, for the client's address. With an error the Caller must be ignored.
func (k *Callers) Authenticate(ctx context.Context) (who attest.Caller, err error) {
	defer func() {
		if err == nil {
			if err = k.accept(ctx, who); err != nil {
				who = attest.Caller{}
			}
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

// Refused returns the reason to stop serving a caller that was authenticated before, or nil. One reason is that the
// credential was revoked, that the cluster left the mesh, or that the Pod or service account is gone. Another reason is
// an expired credential, if the caller's identity could obtain a newer one but has not shown it
// (expiry.Expiry.Refused).
func (k *Callers) Refused(who attest.Caller) error {
	if err := k.withdrawn(who); err != nil {
		return err
	}
	return k.gone(who)
}

// withdrawn returns the reason why a caller's credential is no longer accepted, or nil. The credential is revoked or
// expired (expiry.Expiry.Refused), or the caller's cluster left the mesh.
func (k *Callers) withdrawn(who attest.Caller) error {
	if k.revoked != nil && k.revoked(who) {
		return fmt.Errorf("%s: its certificate or its identity is revoked", who.ID)
	}
	if who.By == attest.ByToken && k.remote != nil && who.Cluster != "" && who.Cluster != k.cluster {
		if _, is := k.remote(who.Cluster); !is {
			return fmt.Errorf("%s: by a token of cluster %s, which the mesh no longer has", who.ID, who.Cluster)
		}
	}
	return k.expiry.Refused(who, time.Now())
}

// MayHaveKeys reports whether a caller may receive further private keys. It may if its credential has not expired, or
// if its identity has shown an unexpired credential. If the first result is false, the second result reports whether
// the caller should reconnect with a newer credential, because it could obtain one. If the first result is true, the
// second has no meaning.
func (k *Callers) MayHaveKeys(who attest.Caller) (may, again bool) {
	ended, issuing := k.expiry.Ended(who, time.Now())
	return !ended, !issuing.IsZero()
}

// Admits reports whether the client certificate of a handshake is an accepted credential. The handshake must have
// verified the certificate, so state.VerifiedChains must not be empty. The argument client is the client's address. The
// returned Assign counts the connection for the certificate's identity. Use the Assign only if the second result is
// true.
func (k *Callers) Admits(state tls.ConnectionState, client net.Addr) (preauth.Assign, bool) {
	who, err := k.certs.Verify(state.VerifiedChains[0][0])
	return k.assign(who, client), err == nil && k.Refused(who) == nil
}

// accept counts the connection of an accepted call as authenticated, and as a connection of the caller's identity. It
// fails if the identity has too many connections, or if the caller is refused meanwhile. The error matches
// attest.ErrUnavailable.
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

// Expiry returns the record of the times at which credentials expire. These times determine when streams and
// connections are ended.
func (k *Callers) Expiry() *expiry.Expiry { return k.expiry }

// Tokens returns the authenticator that accepts only tokens. The authenticator refuses callers whose Pod or service
// account is gone, but not revoked callers. It is nil if no tokens are accepted.
func (k *Callers) Tokens() attest.Authenticator { return k.tokens }

// Required reports whether a stream over TLS needs a credential.
func (k *Callers) Required() bool { return k.required }

// OverTLS reports whether a call came over TLS. The argument ctx is the context of the call at the gRPC server.
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

// Authenticate implements attest.Authenticator. The error is that of the inner Authenticator or of gone.
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

// OfCalls returns the authenticator for calls of the CA. The connection of an accepted call counts as authenticated.
// For a revoked caller, the authenticator returns the Caller without an error, and the connection does not count as
// authenticated. The CA itself refuses revoked callers, and logs their identity. A caller whose token expired within
// the tolerance for clocks (attest.TokensConfig.Leeway) may be returned without an error, too. This caller still gets a
// certificate.
//
// The error is attest.ErrNone for a missing credential. It is another error for an invalid credential, and for a caller
// whose Pod or service account is gone. Tokens of removed clusters, and expired certificates, are invalid credentials.
// attest.ErrUnavailable means that the credential cannot be verified now, or that the identity has too many
// connections.
func (k *Callers) OfCalls() attest.Authenticator { return ofCalls{k} }

// ofCalls is the authenticator that OfCalls returns.
type ofCalls struct{ *Callers }

// Authenticate implements attest.Authenticator. OfCalls describes the errors.
func (k ofCalls) Authenticate(ctx context.Context) (attest.Caller, error) {
	who, err := k.all.Authenticate(ctx)
	if err == nil && k.withdrawn(who) == nil {
		err = k.accept(ctx, who)
	}
	return who, err
}

// tokens returns the verifier of tokens of Kubernetes' issuer and of the own issuer (DataDir). It is nil if neither an
// issuer nor a Reviewer is configured. The caller must run the returned Keys.
func (c Config) tokens(domain spiffeid.TrustDomain) (attest.Authenticator, []*attest.Keys, error) {
	conf := attest.TokensConfig{TrustDomain: domain, Audiences: c.Audiences,
		Cluster: c.Cluster, Remote: c.Remote, Reviewer: c.Reviewer, Now: c.Now}
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
