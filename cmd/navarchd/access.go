package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/cmd/internal/web"
)

// visibleTenants is which namespaces a caller of /debug sees; nil: all, and what concerns the whole process.
type visibleTenants func(namespace string) bool

func (s visibleTenants) of(namespace string) bool { return s == nil || s(namespace) }

// caller is who asks for a page of /debug.
type caller struct {
	name string // what answers that cost are counted for: a SPIFFE ID, this machine, or the address that it asks from
	sees visibleTenants
}

// sameMachine is the name of all callers on this machine.
const sameMachine = "this machine"

// authorizer says who may see what of /debug: callers from this machine and of the system namespace see everything, others with
// a token what belongs to their tenant, and nobody else anything (as istiod does, for namespaces).
type authorizer struct {
	open    bool      // ENABLE_DEBUG_ENDPOINT_AUTH=false: everybody sees everything
	hosts   web.Hosts // names by which pages may be asked for
	system  string
	callers attest.Authenticator          // nil: this process can verify no token
	revoked func(spiffeid.ID) bool        // nil: nobody is
	tenant  func(namespace string) string // equal for the namespaces of one tenant
}

// look says who asks, and what it may see. Errors are those of ca/attest: all but ErrUnavailable are the caller's.
func (d *authorizer) look(r *http.Request) (caller, error) {
	switch {
	case web.SameMachine(r):
		return caller{name: sameMachine}, nil
	case d.open:
		host, _, _ := net.SplitHostPort(r.RemoteAddr) // empty: callers without an address are one
		return caller{name: host}, nil
	case d.callers == nil:
		return caller{}, errors.New("this process can verify no token (--token-issuer): ask from the machine that it runs on")
	}
	ctx := metadata.NewIncomingContext(r.Context(), metadata.MD{"authorization": r.Header.Values("Authorization")})
	who, err := d.callers.Authenticate(ctx)
	switch {
	case err != nil:
		return caller{}, err
	case d.revoked != nil && d.revoked(who.ID):
		return caller{}, fmt.Errorf("%s is revoked", who.ID)
	case who.Namespace == d.system:
		return caller{name: who.ID.String()}, nil
	}
	return caller{name: who.ID.String(), sees: d.within(who.Namespace)}, nil
}

// within is the sight of a caller of a namespace.
func (d *authorizer) within(namespace string) visibleTenants {
	own := d.tenant(namespace)
	return func(other string) bool { return d.tenant(other) == own }
}

// tenantPages are the pages that show a tenant its own; what is not listed is for system callers.
var tenantPages = []string{"/debug/", "/debug/list", "/debug/syncz", "/debug/config_dump", "/debug/explain", "/debug/connections", "/debug/problems"}

const forSystem = "this page is for callers of the system namespace"

// guard serves the pages as far as their caller may see them, and profiles of this process to those who see everything. What a
// page of another site may have made a browser ask for is refused before (issue 12, item 5): such a request comes from this
// machine as well.
func (d *authorizer) guard(pages func(caller) http.Handler) http.Handler {
	profiles := profiles(web.NewSlots(maxProfiles, maxProfiles))
	return web.Guard(d.hosts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := d.look(r)
		switch {
		case errors.Is(err, attest.ErrUnavailable):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case who.sees != nil && !slices.Contains(tenantPages, r.URL.Path):
			http.Error(w, forSystem, http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, pprofPath):
			profiles.ServeHTTP(w, r)
		default:
			pages(who).ServeHTTP(w, r)
		}
	}))
}

// authorizer is as far as streams need it; they are authenticated by who serves them.
func (p *process) authorizer() *authorizer {
	d := &authorizer{open: !p.config.env.debugAuth, hosts: p.config.debugNames(), system: p.config.env.podNamespace, tenant: p.tenants.Of}
	if p.ca != nil {
		d.revoked = func(id spiffeid.ID) bool { return p.ca.ring.State().RevokedIdentity(id) }
	}
	return d
}

// guarded is /debug.
func (p *process) guarded() http.Handler {
	d := p.authorizer()
	d.callers = p.callers.tokens
	return d.guard(p.debug)
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
