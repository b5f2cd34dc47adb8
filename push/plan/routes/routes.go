// Package routes plans the route configurations of one scope of Envoys, virtual host by virtual host. A scope is the
// set of hosts that a group of proxies sees. The front of the scope calls this package. A front (push/plan/front) plans
// the listeners of sidecars or gateways.
//
// A front passes two arguments to New:
//   - a Scope: the layer of the route configurations, the host table that resolves destinations, the patches, and the
//     common inputs of all virtual hosts
//   - a Names, which the front implements. It decides conflicts between virtual hosts with the same domain, and returns
//     the catch-all, the virtual host for all other names
//
// For each route configuration the front passes:
//   - a Config: the name, the port that EnvoyFilters match, and the comparison of domains
//   - its VirtualHosts (Enter, Leave): host, port, domains, and the http rules in order. The rules may belong to
//     several VirtualServices and gateways (host.RulesFor)
//   - the number of listeners that request the route configuration (Use)
//
// A step plans one change of the configuration. After each step (Finish) the layer contains the route configurations
// that listeners request. Vary plans the route configurations that differ for a variation. A variation is the plan for
// proxies with certain labels or other inputs. Only the virtual hosts that a step touches are planned and encoded
// again. Neighbouring virtual hosts are joined in runs, so the work of an edit hardly grows with the number of virtual
// hosts.
//
// Owns: the route configurations of each scope.
// Reads: plan/host.
// Never: plans a listener; chooses the route configurations or the virtual hosts in them.
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
	Layer    *layer.Layer       // receives the route configurations
	Hosts    *host.Table        // resolves the destinations of rules
	Patches  input.PatchSet     // the patches of EnvoyFilters that apply to the proxies
	Problems input.Problems     // receives problems, under keys that begin with "route", "routes" or "added"
	Caps     xds.Caps           // those capabilities of the proxies on which virtual hosts depend
	Proxy    proxyconfig.Routes // settings of the proxies' ProxyConfig
}

// Config describes one route configuration. For a given name it must not change while the table contains the route
// configuration.
type Config struct {
	Name string // the name by which listeners request the route configuration
	Port uint32 // the port of the listener, which EnvoyFilters match; 0 for several ports
	// ServerPorts lists the port numbers of the Gateways' servers that the listener serves. EnvoyFilters match these
	// numbers too.
	ServerPorts intern.List[uint32]
	// OneHost is true if a single virtual host answers for all names. Such a route configuration has no catch-all.
	OneHost bool
	// WithPorts is true if Envoy compares the names of requests including their ports, and false if Envoy ignores the
	// ports.
	WithPorts bool
}

// VirtualHost describes one virtual host of a route configuration. The front fills in all fields. A VirtualHost is
// comparable. Scopes share values and never change them.
type VirtualHost struct {
	ID   string // unique within the route configuration; virtual hosts are sorted by it
	Host string // fully qualified host; may be a wildcard
	Port uint32 // the port of the host
	// Keeps is true if the virtual host never yields a domain to another virtual host of the route configuration, nor
	// to a virtual host that an EnvoyFilter adds.
	Keeps bool
	// Bound is true for a host of a gateway, whose routes come only from Rules. If no rule applies, Kept decides: true
	// publishes the virtual host without routes, false leaves it out. Kept has an effect only if Bound is true.
	Bound, Kept bool
	// TLSOnly is true if requests without TLS are redirected to https. It has an effect only if Bound is true.
	TLSOnly bool
	// Misdirected is true if the domains belong to connections of another server. All requests are answered 421.
	// Misdirected has an effect only if Bound is true.
	Misdirected bool
	// GRPCWeb is true if the filter grpc_web applies to the host's requests. It has an effect only if Bound is true.
	GRPCWeb bool
	// HTTP3 is the UDP port at which the host is also served by HTTP/3, or 0 without HTTP/3. It has an effect only if
	// Bound is true.
	HTTP3 uint32
	// Own is true if the service belongs to the scope's namespace. After a Fork for another namespace, the front calls
	// Enter again for the virtual hosts whose Own changes.
	Own     bool
	Domains intern.List[string]
	Service *model.Service          // the service of the host; nil if only the rules define the host
	Rules   intern.List[vhost.Rule] // the rules of the routes, in order; if empty and not Bound, the service decides the routes
	Reads   intern.List[string]     // keys of the proxy labels that the rules read; empty if they read no labels
}

// Names decides about the domains in the route configurations of a front. The front implements it. Only the planner's
// goroutine calls it.
type Names interface {
	// CatchAll returns the virtual host for all names that no other virtual host has. The table sets the Patches of the
	// result. The second result is false if the route configuration needs no such virtual host.
	CatchAll(c Config) (vhost.CatchAll, bool)
	// Rivals appends to ids the ids of all virtual hosts of the route configuration that may also have the given domain
	// of vh, and returns the extended slice. The appended ids may include vh's own id, and ids that do not exist.
	Rivals(c Config, vh *VirtualHost, domain string, ids []string) []string
	// SameRank reports whether two versions of one virtual host win their domains against the same rivals.
	SameRank(a, b *VirtualHost) bool
	// Yields reports whether a virtual host yields a domain that it has in common with a rival. The result reported is
	// true if the loss of the domain has to be reported as a problem.
	Yields(vh, rival *VirtualHost) (yields, reported bool)
	// Blame returns the key of the object to which a virtual host's problems are attributed.
	Blame(vh *VirtualHost) model.Key
}

// These tables intern the lists in Specs. The tables are weak, so a list lives only as long as a Spec uses the list.
var (
	strs      intern.Table[string]
	fragments intern.Table[*xds.Fragment]
)
