// Package routes plans the route configurations of one scope of Envoys, virtual host by virtual host. Fronts use it.
//
// A front passes to a Table, once:
//   - a Scope: the layer that route configurations are published in, the host table that resolves destinations, the
//     patches, and the common inputs of all virtual hosts;
//   - itself, as Names: the rules by which virtual hosts share domains, and the virtual host for all other names.
//
// For each route configuration it passes:
//   - a Config: its name, the port that EnvoyFilters match, how domains are compared;
//   - its VirtualHosts (Enter, Leave): host, port, domains, and the http rules that decide the routes, in order. The
//     rules may be of several VirtualServices and for several gateways (host.RulesFor);
//   - the number of listeners that request it (Use).
//
// After each step (Finish) the layer contains the route configurations that listeners request. Vary plans those that
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

// Scope contains the common inputs of all route configurations of a scope.
type Scope struct {
	In       *input.Input
	Layer    *layer.Layer       // where route configurations are published
	Hosts    *host.Table        // resolves the destinations of rules
	Patches  input.PatchSet     // of the same side as Hosts
	Problems input.Problems     // receives problems, by units whose names begin with "route", "routes" or "added"
	Caps     xds.Caps           // of the proxies, reduced to those that virtual hosts depend on
	Proxy    proxyconfig.Routes // settings of the proxies' ProxyConfig
}

// Config describes one route configuration. For a given name it must not change while the table contains the route
// configuration.
type Config struct {
	Name string // by which listeners request it
	Port uint32 // of its listener, which EnvoyFilters match; 0 for several ports
	// ServerPorts are the ports that servers of Gateways state for Port. EnvoyFilters match them as well.
	ServerPorts intern.List[uint32]
	// OneHost means that the single virtual host answers for all names, so there is no catch-all.
	OneHost bool
	// WithPorts means that Envoy compares names including their ports. Otherwise it ignores the port of a request's name.
	WithPorts bool
}

// VirtualHost is one virtual host of a route configuration, as the front decides it. It is comparable. Scopes share
// values and never change them.
type VirtualHost struct {
	ID   string // unique within the route configuration, and the order of virtual hosts
	Host string // fully qualified; may be a wildcard
	Port uint32 // of the host
	// Keeps means that it never yields a domain to another virtual host of the route configuration.
	Keeps bool
	// Bound: VirtualServices are bound to the host at a gateway. Without rules there are no routes, and the virtual host
	// is left out unless it is Kept.
	Bound, Kept bool
	// TLSOnly: requests without TLS are redirected to https.
	TLSOnly bool
	// Misdirected: connections of another server are for the domains, so that every request is answered 421.
	Misdirected bool
	// HTTP3 is the UDP port at which the host is served by HTTP/3 too; 0: no HTTP/3.
	HTTP3 uint32
	// Own means that the service belongs to the scope's namespace. It is stored because the table of a clone for another
	// namespace starts with this value.
	Own     bool
	Domains intern.List[string]
	Service *model.Service          // of the host; nil if only the rules define the host
	Rules   intern.List[vhost.Rule] // decide the routes, in order; if empty, the service alone decides
	Reads   intern.List[string]     // keys of the proxy labels that the rules read
}

// Names contains the rules of a front about the names in its route configurations.
type Names interface {
	// CatchAll returns the virtual host for all names that no other virtual host has, without patches. The result is
	// false if the route configuration needs no such virtual host.
	CatchAll(c Config) (vhost.CatchAll, bool)
	// Rivals appends to ids the id of each virtual host of the route configuration that may have a domain of vh too. The
	// appended ids may include vh's, and ids that do not exist.
	Rivals(c Config, vh *VirtualHost, domain string, ids []string) []string
	// SameRank reports whether two versions of a virtual host win their domains against the same rivals.
	SameRank(a, b *VirtualHost) bool
	// Yields reports whether a virtual host yields a domain to a rival, and whether that is reported as a problem.
	Yields(vh, rival *VirtualHost) (yields, reported bool)
	// Blame returns the key of the object that a virtual host's problems are reported for.
	Blame(vh *VirtualHost) model.Key
}

// Interned lists of Specs. The tables are weak: a list lives as long as some Spec uses it.
var (
	strs      intern.Table[string]
	fragments intern.Table[*xds.Fragment]
)
