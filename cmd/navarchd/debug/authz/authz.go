// Package authz says who may see what of /debug, as HTTP pages and as questions on a stream: callers from this machine and of the system
// namespace of the config cluster see everything, others with a token what belongs to their tenant, and nobody else anything (as istiod does, for namespaces).
//
// Owns: the list of pages that tenants may see, and the profiles of this process.  Reads: tokens, identities, tenants.  Never: makes
// another page, nor believes what a client writes about itself.
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

// Visible is which namespaces a caller of /debug sees; nil: all, and what concerns the whole process.
type Visible func(namespace string) bool

// Of says whether a namespace is among them.
func (v Visible) Of(namespace string) bool { return v == nil || v(namespace) }

// Caller is who asks for a page of /debug.
type Caller struct {
	Name   string // what answers that cost are counted for: a SPIFFE ID, this machine, or the address that it asks from
	Tenant string // whose things it sees, as Authorizer.Tenant has it; empty: it sees everything
	Sees   Visible
}

// sameMachine is the name of all callers on this machine.
const sameMachine = "this machine"

// Authorizer has the rules.
type Authorizer struct {
	Open    bool                          // ENABLE_DEBUG_ENDPOINT_AUTH=false: everybody sees everything
	Hosts   web.Hosts                     // names by which pages may be asked for
	System  string                        // the namespace whose callers see everything, if they are of Cluster
	Cluster string                        // the config cluster, by its name in attest.Caller
	Tokens  attest.Authenticator          // of callers of pages; nil: this process can verify no token
	Revoked func(spiffeid.ID) bool        // nil: nobody is
	Tenant  func(namespace string) string // equal for the namespaces of one tenant
}

// look says who asks, and what it may see. Errors are those of ca/attest: all but ErrUnavailable are the caller's.
func (d *Authorizer) look(r *http.Request) (Caller, error) {
	switch {
	case web.SameMachine(r):
		return Caller{Name: sameMachine}, nil
	case d.Open:
		host, _, _ := net.SplitHostPort(r.RemoteAddr) // empty: callers without an address are one
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

// caller is an authenticated one, with what it sees.
func (d *Authorizer) caller(who attest.Caller) Caller {
	c := Caller{Name: who.ID.String()}
	if !d.system(who) {
		c.Tenant = d.Tenant(who.Namespace)
		c.Sees = func(other string) bool { return d.Tenant(other) == c.Tenant }
	}
	return c
}

// system says whether a caller is of the control plane's own namespace, in the config cluster: whoever rules another cluster may have the identities of all namespaces there.
// Where that is not proved, by a certificate that names no cluster, it sees what its namespace's tenant does: a token of the config cluster proves it.
func (d *Authorizer) system(who attest.Caller) bool {
	return who.Namespace == d.System && who.ProvesToBeOf(d.Cluster)
}

// TenantMaySee says whether a tenant may ask for a page by its path; the page shows it what is its own.
func TenantMaySee(path string) bool { return slices.Contains(tenantPages, path) }

// tenantPages are the pages that show a tenant its own; what is not listed is for system callers.
var tenantPages = []string{"/debug/", "/debug/list", "/debug/syncz", "/debug/config_dump", "/debug/explain", "/debug/connections", "/debug/problems", "/debug/patches", "/debug/removals"}

// ForSystem is what others are told of a page that is for system callers alone.
const ForSystem = "this page is for callers of the system namespace"

// Guard serves the pages as far as their caller may see them, and profiles of this process to those who see everything. What a
// page of another site may have made a browser ask for is refused before (issue 12, item 5): such a request comes from this
// machine as well.
func (d *Authorizer) Guard(pages func(Caller) http.Handler) http.Handler {
	profiles := profiles(semaphore.NewWeighted(maxProfiles))
	return web.Guard(d.Hosts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := d.look(r)
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

// Stream is a stream's caller and what it sees, by the same rules as a page's. An identity is needed, as istiod wants
// it: a sidecar in front of this replica would make every plain-text caller one of this machine. Errors are gRPC statuses.
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
