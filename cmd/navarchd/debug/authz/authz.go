// Package authz authorises callers of /debug and /api/v1, over HTTP and on a stream. Callers from this machine, and
// callers of the system namespace (the control plane's own) of the config cluster, see everything. Other authenticated
// callers see the data of their tenant, which is a group of namespaces. (With istiod, they see the data of their
// namespace.) Over HTTP a caller authenticates with a token, on a stream with a token or a certificate. Unauthenticated
// callers see nothing, unless Authorizer.Open is set.
//
// Owns: the list of pages for tenants, and the pages with profiles of this process.
// Reads: tokens, identities, tenants.
// Never: makes pages other than profiles; trusts a client's claims about itself.
package authz

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/cmd/internal/web"
)

// Visible reports whether a caller may see a namespace. A nil Visible means that the caller may see everything, also
// the state of the process. The empty namespace stands for objects and facts that belong to no namespace.
type Visible func(namespace string) bool

// Of reports whether a namespace is visible. For a nil Visible every namespace is visible.
func (v Visible) Of(namespace string) bool { return v == nil || v(namespace) }

// Caller is an authenticated caller of /debug or /api/v1.
type Caller struct {
	Name   string  // key for counting answers: a SPIFFE ID, "this machine", or the client's IP address; may be empty
	Tenant string  // as Authorizer.Tenant returns it; empty: the caller sees everything
	Sees   Visible // nil: the caller sees everything
}

// sameMachine is the name of all callers on this machine.
const sameMachine = "this machine"

// Authorizer has the rules. Its fields must not be changed while it is in use.
type Authorizer struct {
	Open    bool                          // ENABLE_DEBUG_ENDPOINT_AUTH=false: every caller sees everything
	Hosts   web.Hosts                     // host names that requests to the pages may have
	System  string                        // the namespace whose callers see everything, if they are of Cluster
	Cluster string                        // name of the config cluster, as in attest.Caller
	Tokens  attest.Authenticator          // authenticates callers over HTTP; nil: this process can verify no token
	Revoked func(spiffeid.ID) bool        // nil: no identity is revoked
	Tenant  func(namespace string) string // returns the name of the namespace's tenant; required
}

// authenticate returns the caller of a request with its visibility. Errors are those of Tokens, and errors for a
// revoked caller and for missing Tokens. All errors except attest.ErrUnavailable mean that the caller is refused.
func (d *Authorizer) authenticate(r *http.Request) (Caller, error) {
	switch {
	case web.SameMachine(r):
		return Caller{Name: sameMachine}, nil
	case d.Open:
		host, _, _ := net.SplitHostPort(r.RemoteAddr) // empty: callers without an address count as one
		return Caller{Name: host}, nil
	case d.Tokens == nil:
		return Caller{}, errors.New("this process cannot verify tokens (--token-issuer): send the request from " +
			"the machine on which the process runs")
	}
	ctx := metadata.NewIncomingContext(r.Context(), metadata.MD{"authorization": r.Header.Values("Authorization")})
	who, err := d.Tokens.Authenticate(ctx)
	switch {
	case err != nil:
		return Caller{}, err
	case d.Revoked != nil && d.Revoked(who.ID):
		return Caller{}, fmt.Errorf("%s is revoked", who.ID)
	}
	return d.caller(who), nil
}

// caller returns an authenticated caller with its visibility.
func (d *Authorizer) caller(who attest.Caller) Caller {
	c := Caller{Name: who.ID.String()}
	if !d.system(who) {
		c.Tenant = d.Tenant(who.Namespace)
		c.Sees = func(other string) bool { return d.Tenant(other) == c.Tenant }
	}
	return c
}

// system reports whether a caller belongs to the control plane's own namespace in the config cluster. The namespace
// alone is not enough, because administrators of another cluster may have the identities of all namespaces there. A
// token of the config cluster proves the caller's cluster. A certificate that names no cluster does not prove it, so
// the caller sees only the tenant of its namespace.
func (d *Authorizer) system(who attest.Caller) bool {
	return who.Namespace == d.System && who.ProvesToBeOf(d.Cluster)
}

// Forwarded returns a Caller for a caller that another replica has authenticated. If the argument all is true, the
// caller sees everything. If not, the caller sees the namespaces that belong to the tenant by this process's rules.
func (d *Authorizer) Forwarded(name, tenant string, all bool) Caller {
	c := Caller{Name: name}
	if !all {
		c.Tenant = tenant
		c.Sees = func(other string) bool { return d.Tenant(other) == tenant }
	}
	return c
}

// TenantMaySee reports whether a tenant may request a path. A permitted page shows only the tenant's own data.
// TenantMaySee permits all paths below /api/v1/, because the API itself refuses single endpoints (cmd/navarchd/api).
func TenantMaySee(path string) bool {
	return slices.Contains(tenantPages, path) || strings.HasPrefix(path, apiPath)
}

// apiPath is the path of the API (fleetapi.Root).
const apiPath = "/api/v1/"

// tenantPages are the pages that show a tenant its own data. All other pages are for callers who see everything.
var tenantPages = []string{"/debug/", "/debug/list", "/debug/syncz",
	"/debug/config_dump", "/debug/explain", "/debug/connections", "/debug/problems", "/debug/patches", "/debug/removals"}

// ForSystem is the text that refuses a page to callers who do not see everything.
const ForSystem = "this page is for callers of the system namespace"

// Guard authenticates the caller of each request. It calls the function pages with the caller, and passes the request
// to the returned handler. Guard also serves the profiles of this process to callers who see everything.
//
// Guard refuses a request with status 401 if the credential is missing, not accepted or revoked, and with 503 while a
// token cannot be verified. It refuses with 403 if the page is not for tenants, or if the request's host is not in
// Hosts. It also refuses with 403 if a page of another site may have caused the request in a browser.
func (d *Authorizer) Guard(pages func(Caller) http.Handler) http.Handler {
	profiles := profiles(semaphore.NewWeighted(maxProfiles))
	return web.Guard(d.Hosts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := d.authenticate(r)
		switch {
		case errors.Is(err, attest.ErrUnavailable):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case who.Sees != nil && !TenantMaySee(r.URL.Path):
			http.Error(w, ForSystem, http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, pprofPath):
			profiles.ServeHTTP(w, r)
		default:
			pages(who).ServeHTTP(w, r)
		}
	}))
}

// Stream returns the Caller for the authenticated peer of a gRPC stream, by the same rules as for pages. But callers
// from this machine also need an identity, as with istiod: behind a sidecar, each plain-text caller would appear to be
// on this machine. Errors are gRPC statuses: Unauthenticated without an identity, PermissionDenied for a revoked
// identity. With Open there are no errors.
func (d *Authorizer) Stream(who attest.Caller) (Caller, error) {
	switch {
	case d.Open:
		return Caller{Name: who.ID.String()}, nil
	case who.ID.IsZero():
		return Caller{}, status.Error(codes.Unauthenticated, "authentication required: ask over TLS, with a certificate or a token")
	case d.Revoked != nil && d.Revoked(who.ID):
		return Caller{}, status.Errorf(codes.PermissionDenied, "%s is revoked", who.ID)
	}
	return d.caller(who), nil
}
