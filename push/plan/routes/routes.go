// Package routes plans the route configurations of one scope of Envoys, virtual host by virtual host. Fronts use it.
//
// A front gives a Table, once:
//   - a Scope: the layer that route configurations are published in, the host table that resolves destinations, the patches,
//     and what all virtual hosts have in common;
//   - itself, as Names: which of several virtual hosts has a domain, and which one takes all other names.
//
// For each route configuration it gives:
//   - a Config: its name, the port that EnvoyFilters match, how domains are compared;
//   - its VirtualHosts (Enter, Leave): host, port, domains, and the http rules that decide the routes, in order. The rules
//     may be of several VirtualServices and for several gateways (host.RulesFor);
//   - the number of listeners that ask for it (Use).
//
// After each step (Finish) the layer has the route configurations that listeners ask for. Vary plans those that
// differ for the proxies of a variation. Only the virtual hosts that a step touches are decided and encoded again.
// Neighbouring virtual hosts are joined in runs, so that the work of an edit does not grow with the number of virtual
// hosts.
//
// Owns: the route configurations of each scope.  Reads: plan/host.  Never: a listener; which hosts a scope has route
// configurations for.
package routes

import (
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// Scope has the common inputs of all route configurations of a scope.
type Scope struct {
	In       *input.Input
	Layer    *layer.Layer   // where route configurations are published
	Hosts    *host.Table    // resolves the destinations of rules
	Patches  input.PatchSet // of the side that Hosts is for
	Problems input.Problems // receives problems, by units whose names begin with "route", "routes" or "added"
	Caps     xds.Caps       // of the proxies, as far as virtual hosts read them
	Proxy    proxyconfig.Routes
}

// Config describes one route configuration. A name has the same Config for as long as the table has the route
// configuration.
type Config struct {
	Name string // by which listeners ask for it
	Port uint32 // of its listener, which EnvoyFilters match; 0: several ports
	// OneHost: the single virtual host answers for all names, so there is no catch-all.
	OneHost bool
	// WithPorts: Envoy compares names including their ports. Otherwise it ignores the port of a request's name.
	WithPorts bool
}

// VirtualHost is one virtual host as a front gives it. Comparable. Scopes share it: it is replaced, never changed.
type VirtualHost struct {
	ID   string // within the route configuration; virtual hosts are ordered by it
	Host string // fully qualified; may be a wildcard
	Port uint32 // of the host
	// Keeps: it has its domains whatever other virtual hosts of the route configuration have.
	Keeps bool
	// Own: the service is of the scope's namespace. Stored, because a clone for another namespace begins with this value.
	Own     bool
	Domains intern.List[string]
	Service *model.Service          // of the host; nil: the rules alone define the host
	Rules   intern.List[vhost.Rule] // decide the routes, in order; without rules the service alone decides
	Reads   intern.List[string]     // keys of the proxy labels that the rules read
}

// Names answers what only a front knows about the names in its route configurations.
type Names interface {
	// CatchAll is the Spec of the virtual host for all names that no other virtual host has, without patches. False:
	// there is none.
	CatchAll(c Config) (vhost.CatchAll, bool)
	// Rivals appends to ids the id of each virtual host of the route configuration that may have a domain of vh too: vh
	// may be among them, and so may ids that do not exist.
	Rivals(c Config, vh *VirtualHost, domain string, ids []string) []string
	// SameRank says whether two versions of a virtual host have their domains before the same rivals.
	SameRank(a, b *VirtualHost) bool
	// Yields says whether a virtual host yields a domain to a rival, and whether that is reported as a problem.
	Yields(vh, rival *VirtualHost) (yields, reported bool)
	// Blame is the object that a virtual host's problems are reported for.
	Blame(vh *VirtualHost) model.Key
}

// Interned lists of Specs; weak, so nothing is held that no Spec holds.
var (
	strs      intern.Table[string]
	fragments intern.Table[*xds.Fragment]
)
