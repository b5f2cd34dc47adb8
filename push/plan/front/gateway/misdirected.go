package gateway

import (
	"fmt"
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// A request is misdirected if the server of its connection is not the server of its host. Both servers have the same
// port. Either the client has reused a connection whose certificate covers the host, or it tries to evade the server
// of the host. In each route configuration, the misdirected hosts share one virtual host, which answers 421.
const (
	misdirected   = "misdirected" // the host of this virtual host
	misdirectedID = ":" + misdirected
)

// noteElsewhere marks a route configuration for decideMisdirected if other servers own hosts that may be misdirected
// here. It also appends a problem for each guarded host of the configuration's own servers. A host is guarded if
// another server requires a client certificate for it. If a server of the configuration may serve the host nevertheless
// (gateways.Owners.Guard), the server that requires a certificate gets a problem, once.
func (f *Front) noteElsewhere(c *config, found *[]input.Problem) {
	if f.Key.Edge.Value().Misdirected404 {
		c.elsewhere.Others = nil
	}
	if len(c.elsewhere.Guarded)+len(c.elsewhere.Shared)+len(c.elsewhere.Others) > 0 {
		f.misdirects[c.Name] = true
	}
	if len(c.elsewhere.Open)+len(c.elsewhere.Guarded) == 0 { // Open contains the list Shared
		return
	}
	said, first := map[*networkingv1.Server]bool{}, c.firstAdmitted()
	for _, name := range c.elsewhere.Open {
		by, _ := c.owners.Guard(name)
		if said[by.Spec()] {
			continue
		}
		said[by.Spec()] = true
		if winner, some := first(by, name); some {
			*found = append(*found, openHost(winner, by, name))
		}
	}
	for _, name := range slices.Concat(c.elsewhere.Guarded, c.elsewhere.Shared) {
		by, _ := c.owners.Guard(name)
		effect := "requests to this server are answered 421"
		if _, some := first(by, name); some {
			effect = "this server does not serve it"
		}
		for k, h := range c.stated[name] {
			s := c.servers[h.server]
			if again := k > 0 && c.stated[name][k-1].server == h.server; again || by.Admits(s) {
				continue
			}
			*found = append(*found, input.Problem{Key: s.Gateway.Key, Field: fmt.Sprintf("spec.servers[%d].hosts", s.Index),
				Code: problem.Duplicate, Analyzer: problem.ConflictingGateways, Severity: problem.Error,
				Message: fmt.Sprintf("host %s on port %d: %v (spec.servers[%d]) requires a client certificate for it, so that %s",
					name, s.Bound, by.Gateway.Key, by.Index, effect)})
		}
	}
}

// firstAdmitted returns a function that returns the first server that may serve a domain although its owner guards it.
// For each host the function compares the owner with two servers only, the first one and the first one of another
// namespace. Both have the order of precedence, and no server of the owner's namespace may serve without TLS. So if the
// owner admits neither, it admits no server with this host.
func (c *config) firstAdmitted() func(owner gateways.Server, domain string) (first gateways.Server, some bool) {
	leads := make(map[string][]int, len(c.stated))
	for name, all := range c.stated {
		of := func(i int) string { return c.servers[all[i].server].Gateway.Key.Namespace }
		leads[name] = []int{all[0].server}
		for i := range all {
			if of(i) != of(0) {
				leads[name] = append(leads[name], all[i].server)
				break
			}
		}
	}
	return func(owner gateways.Server, domain string) (first gateways.Server, some bool) {
		best := len(c.servers)
		for pattern := range model.Covering(domain) {
			for _, i := range leads[pattern] {
				if i < best && owner.Admits(c.servers[i]) {
					best = i
				}
			}
		}
		if best == len(c.servers) {
			return first, false
		}
		return c.servers[best], true
	}
}

// openHost returns the problem of the server guard, which requires client certificates for a host. The server winner
// takes precedence over it, and serves the host without TLS.
func openHost(winner, guard gateways.Server, host string) input.Problem {
	p := input.Warning(guard.Gateway.Key, problem.Duplicate, fmt.Sprintf("spec.servers[%d].hosts", guard.Index),
		fmt.Sprintf("requests without TLS for host %s on port %d go to %v (spec.servers[%d]), which takes precedence and requires no "+
			"client certificate", host, guard.Bound, winner.Gateway.Key, winner.Index))
	p.Analyzer = problem.ConflictingGateways
	return p
}

// manyElsewhere returns the problem of a listener if a route configuration would have to list more than
// gateways.MaxElsewhere unguarded hosts of other servers. The route configuration then lists no such hosts. The
// parameter left is the highest number of such hosts for a route configuration.
func manyElsewhere(l gateways.Listener, left int) input.Problem {
	last := l.TLS[len(l.TLS)-1]
	return input.Warning(last.Gateway.Key, problem.NotSupported, fmt.Sprintf("spec.servers[%d].hosts", last.Index),
		fmt.Sprintf("port %d has %d hosts of other servers, and a route configuration lists at most %d: misdirected requests are "+
			"answered 404 instead of 421", l.Port, left, gateways.MaxElsewhere))
}

// misdirect is called after a domain has appeared in a route configuration or disappeared from it. It marks the route
// configuration if this may change the misdirected hosts.
func (f *Front) misdirect(c *config, domain string) {
	_, of := slices.BinarySearch(c.elsewhere.Others, domain)
	if of || c.shares(domain) || len(c.elsewhere.Others) > 0 && input.IsWildcard(domain) {
		f.misdirects[c.Name] = true
	}
}

// decideMisdirected plans the virtual host for misdirected requests in each marked route configuration. Guarded hosts
// are always misdirected. A shared host (config.shares) is misdirected unless the route configuration has a virtual
// host of this very host. Any other host is misdirected unless the route configuration has a virtual host for it.
func (f *Front) decideMisdirected() {
	for _, name := range slices.Sorted(maps.Keys(f.misdirects)) {
		c := f.configs[name]
		var domains []string
		for _, guarded := range c.elsewhere.Guarded {
			domains = append(domains, guarded)
			if guarded != "*" {
				domains = append(domains, guarded+".") // the absolute DNS name; otherwise a virtual host "*" would match it
			}
			if !input.IsWildcard(guarded) {
				domains = append(domains, guarded+":*") // Envoy removes one port, so HOST:PORT:PORT would match "*"
			}
		}
		for _, shared := range c.elsewhere.Shared { // never "*": servers with and without TLS cannot both have it
			if !f.routes.Has(c.Config, shared) {
				domains = append(domains, shared)
			}
			domains = append(domains, shared+".")
		}
		for _, host := range c.elsewhere.Others {
			if !c.shares(host) && !f.serves(c, host) {
				domains = append(domains, host)
			}
		}
		switch {
		case len(domains) > 0:
			f.routes.Enter(c.Config, routes.VirtualHost{ID: misdirectedID, Host: misdirected, Port: c.port,
				Domains: strs.List(domains...), Bound: true, Kept: true, Misdirected: true}, func() {})
		case f.routes.Has(c.Config, misdirectedID):
			f.routes.Leave(c.Config, misdirectedID, func() {})
		}
	}
	clear(f.misdirects)
}

// serves reports whether a route configuration has a virtual host for a host, by its name or by a wildcard that covers
// it.
func (f *Front) serves(c *config, host string) bool {
	for pattern := range model.Covering(host) {
		if f.routes.Has(c.Config, pattern) {
			return true
		}
	}
	return false
}
