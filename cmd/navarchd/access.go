package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/metadata"

	"navarch.io/navarch/ca/attest"
)

// sight is which namespaces a caller of /debug sees; nil: all, and what concerns the whole process.
type sight func(namespace string) bool

func (s sight) of(namespace string) bool { return s == nil || s(namespace) }

// door says who may see what of /debug: callers from this machine and of the system namespace see everything, others with
// a token what belongs to their tenant, and nobody else anything (as istiod does, for namespaces).
type door struct {
	open    bool // ENABLE_DEBUG_ENDPOINT_AUTH=false: everybody sees everything
	system  string
	callers attest.Authenticator          // nil: this process can verify no token
	revoked func(spiffeid.ID) bool        // nil: nobody is
	tenant  func(namespace string) string // equal for the namespaces of one tenant
}

// look says what a request may see. Errors are those of ca/attest: all but ErrUnavailable are the caller's.
func (d *door) look(r *http.Request) (sight, error) {
	if d.open || local(r) {
		return nil, nil
	}
	if d.callers == nil {
		return nil, errors.New("this process can verify no token (--token-issuer): ask from the machine that it runs on")
	}
	ctx := metadata.NewIncomingContext(r.Context(), metadata.MD{"authorization": r.Header.Values("Authorization")})
	caller, err := d.callers.Authenticate(ctx)
	switch {
	case err != nil:
		return nil, err
	case d.revoked != nil && d.revoked(caller.ID):
		return nil, fmt.Errorf("%s is revoked", caller.ID)
	case caller.Namespace == d.system:
		return nil, nil
	}
	return d.within(caller.Namespace), nil
}

// within is the sight of a caller of a namespace.
func (d *door) within(namespace string) sight {
	own := d.tenant(namespace)
	return func(other string) bool { return d.tenant(other) == own }
}

// local says whether a request was made on this machine: kubectl port-forward's are. What a proxy on this machine passes on
// comes from elsewhere.
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback() && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("Forwarded") == ""
}

// tenantPages are the pages that show a tenant its own; what is not listed is for system callers.
var tenantPages = []string{"/debug/", "/debug/list", "/debug/syncz", "/debug/config_dump", "/debug/explain", "/debug/connections", "/debug/problems"}

const forSystem = "this page is for callers of the system namespace"

// guard serves the pages as far as the caller may see them: whole is everything, part what somebody may see.
func (d *door) guard(whole http.Handler, part func(sight) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sees, err := d.look(r)
		switch {
		case errors.Is(err, attest.ErrUnavailable):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case sees == nil:
			whole.ServeHTTP(w, r)
		case !slices.Contains(tenantPages, r.URL.Path):
			http.Error(w, forSystem, http.StatusForbidden)
		default:
			part(sees).ServeHTTP(w, r)
		}
	})
}

// withProfiles adds the profiles of this process to the pages.
func withProfiles(pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/debug/", pages)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// door is as far as streams need it; they are authenticated by who serves them.
func (p *process) door() *door {
	d := &door{open: !p.config.env.debugAuth, system: p.config.env.podNamespace, tenant: p.tenants.of}
	if p.ca != nil {
		d.revoked = func(id spiffeid.ID) bool { return p.ca.ring.State().RevokedIdentity(id) }
	}
	return d
}

// guarded is /debug; the keys of token issuers that it needs and no other part of this process keeps fresh are returned.
func (p *process) guarded() (http.Handler, []*attest.Keys, error) {
	d := p.door()
	var keys []*attest.Keys
	if p.ca != nil {
		d.callers = p.ca.tokens
	} else {
		domain, err := spiffeid.TrustDomainFromString(p.config.trustDomain)
		if err != nil {
			return nil, nil, fmt.Errorf("--trust-domain: %w", err)
		}
		if d.callers, keys, err = p.config.tokens(domain, p.log); err != nil {
			return nil, nil, err
		}
	}
	return d.guard(withProfiles(p.debug(nil)), p.debug), keys, nil
}

// tokens verifies tokens of Kubernetes' issuer (--token-issuer) and of our own (embedded default); nil where there is
// neither. Whoever asks runs the keys.
func (c *config) tokens(domain spiffeid.TrustDomain, log *slog.Logger) (attest.Authenticator, []*attest.Keys, error) {
	conf := attest.TokensConfig{TrustDomain: domain, Audiences: c.env.audiences}
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
		conf.Issuers = append(conf.Issuers, attest.TokenIssuer{Name: c.tokenIssuer, Keys: keys})
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
