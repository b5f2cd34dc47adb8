// Package authz authorises callers of /debug and /api/v1, over HTTP and on a stream. Callers from this machine, and
// those of the system namespace of the config cluster, see everything. Others with a token see what belongs to their
// tenant (as with istiod, for namespaces). Without a token nothing is visible.
//
// Owns: the list of pages for tenants, and the profiles of this process.
// Reads: tokens, identities, tenants.
// Never: makes another page; trusts a client's claims about itself.
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

// Visible reports which namespaces a caller of /debug may see; nil: all, and what concerns the whole process.
type Visible func(namespace string) bool

// Of reports whether a namespace is visible.
func (v Visible) Of(namespace string) bool { return v == nil || v(namespace) }

// Caller is an authenticated caller of a page of /debug.
type Caller struct {
	Name   string // key for counting costly answers: a SPIFFE ID, this machine, or the client's address
	Tenant string // its tenant, as Authorizer.Tenant returns it; empty: it sees everything
	Sees   Visible
}

// sameMachine is the name of all callers on this machine.
const sameMachine = "this machine"

// Authorizer has the rules.
type Authorizer struct {
	Open    bool                          // ENABLE_DEBUG_ENDPOINT_AUTH=false: everybody sees everything
	Hosts   web.Hosts                     // host names for requests to the pages
	System  string                        // the namespace whose callers see everything, if they are of Cluster
	Cluster string                        // name of the config cluster, as in attest.Caller
	Tokens  attest.Authenticator          // for callers of pages; nil: this process can verify no token
	Revoked func(spiffeid.ID) bool        // nil: no identity is revoked
	Tenant  func(namespace string) string // equal for the namespaces of one tenant
}

// authenticate returns the caller of a request, and what it may see. Errors are those of ca/attest: all except
// ErrUnavailable are the caller's fault.
func (d *Authorizer) authenticate(r *http.Request) (Caller, error) {
	switch {
	case web.SameMachine(r):
		return Caller{Name: sameMachine}, nil
	case d.Open:
		host, _, _ := net.SplitHostPort(r.RemoteAddr) // empty: callers without an address count as one
		return Caller{Name: host}, nil
	case d.Tokens == nil:
		return Caller{}, errors.New("this process can verify no token (--token-issuer): ask from the machine that it runs on")
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

// system reports whether a caller is of the control plane's own namespace in the config cluster. Administrators of
// another cluster may have the identities of all namespaces there. Without proof, as by a certificate that names no
// cluster, a caller sees its namespace's tenant; a token of the config cluster is proof.
func (d *Authorizer) system(who attest.Caller) bool {
	return who.Namespace == d.System && who.ProvesToBeOf(d.Cluster)
}

// Forwarded returns a caller that another replica has authenticated: one that sees everything, or a tenant's. It sees
// what it would see if it had asked this process.
func (d *Authorizer) Forwarded(name, tenant string, all bool) Caller {
	c := Caller{Name: name}
	if !all {
		c.Tenant = tenant
		c.Sees = func(other string) bool { return d.Tenant(other) == tenant }
	}
	return c
}

// TenantMaySee reports whether a tenant may request a page by its path; the page shows the tenant's own data. The API
// refuses single endpoints itself (cmd/navarchd/api).
func TenantMaySee(path string) bool {
	return slices.Contains(tenantPages, path) || strings.HasPrefix(path, apiPath)
}

// apiPath is the path of the API (fleetapi.Root).
const apiPath = "/api/v1/"

// tenantPages are the pages that show a tenant its own data; all others are for system callers.
var tenantPages = []string{"/debug/", "/debug/list", "/debug/syncz",
	"/debug/config_dump", "/debug/explain", "/debug/connections", "/debug/problems", "/debug/patches", "/debug/removals"}

// ForSystem refuses a page to callers other than system callers.
const ForSystem = "this page is for callers of the system namespace"

// Guard serves the pages, limited to what each caller may see, and profiles of this process to callers who see
// everything. Requests that another site's page may have caused in a browser are refused first: they come from this
// machine, too.
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

// Stream returns a stream's caller and its visibility, by the rules for pages. As with istiod an identity is required:
// behind a sidecar in front of this replica every plain-text caller would appear as one of this machine. Errors are
// gRPC statuses.
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
