package gateway

import (
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Hosts of other servers of a port share one virtual host of a route configuration. Its requests are misdirected: a
// client has reused a connection whose certificate covers the host, or evades the server of the host.
const (
	misdirected   = "misdirected" // its host
	misdirectedID = ":" + misdirected
)

// noteElsewhere notes the hosts of other servers that a route configuration must answer. A host that its own servers
// state, and that a server with client certificates guards, is a problem of these servers' Gateway.
func (f *Front) noteElsewhere(c *config, found *[]input.Problem) {
	if f.Key.Edge.Value().Misdirected404 {
		c.elsewhere.Others = nil
	}
	if len(c.elsewhere.Guarded)+len(c.elsewhere.Others) > 0 {
		f.misdirects[c.Name] = true
	}
	for _, name := range c.elsewhere.Guarded {
		by, _ := c.owners.Guard(c.servers, name)
		for _, i := range c.stated[name] {
			s := c.servers[i]
			*found = append(*found, input.Problem{Key: s.Gateway.Key, Field: fmt.Sprintf("spec.servers[%d].hosts", s.Index),
				Code: problem.Duplicate, Analyzer: problem.ConflictingGateways, Severity: problem.Error,
				Message: fmt.Sprintf("host %s on port %d: %v (spec.servers[%d]) requires a client certificate for it, so that requests "+
					"to this server are answered 421", name, s.Bound, by.Gateway.Key, by.Index)})
		}
	}
}

// manyElsewhere is the problem of a listener with more hosts than route configurations list for other servers.
func manyElsewhere(l gateways.Listener, left int) input.Problem {
	last := l.TLS[len(l.TLS)-1]
	return input.Warning(last.Gateway.Key, problem.NotSupported, fmt.Sprintf("spec.servers[%d].hosts", last.Index),
		fmt.Sprintf("port %d has %d hosts of other servers, and %d at most are known to each: misdirected requests are answered 404 "+
			"instead of 421", l.Port, left, gateways.MaxElsewhere))
}

// misdirect notes that a domain appears in a route configuration or disappears, where that decides which hosts are
// misdirected.
func (f *Front) misdirect(c *config, domain string) {
	if _, of := slices.BinarySearch(c.elsewhere.Others, domain); of || len(c.elsewhere.Others) > 0 && input.IsWildcard(domain) {
		f.misdirects[c.Name] = true
	}
}

// decideMisdirected decides the virtual hosts of misdirected requests again, where the step has changed them. A host
// that the route configuration serves itself, by its name or by a wildcard, is not misdirected unless it is guarded.
func (f *Front) decideMisdirected() {
	for _, name := range slices.Sorted(maps.Keys(f.misdirects)) {
		c := f.configs[name]
		var domains []string
		for _, guarded := range c.elsewhere.Guarded {
			domains = append(domains, guarded)
			if guarded != "*" {
				domains = append(domains, guarded+".") // the same name in DNS, which a virtual host "*" would take
			}
		}
		for _, host := range c.elsewhere.Others {
			if !f.serves(c, host) {
				domains = append(domains, host)
			}
		}
		switch {
		case len(domains) > 0:
			f.routes.Enter(c.Config, routes.VirtualHost{ID: misdirectedID, Host: misdirected, Port: c.port,
				Domains: strs.List(domains...), Bound: true, Kept: true, Misdirected: true})
		case f.routes.Has(c.Config, misdirectedID):
			f.routes.Leave(c.Config, misdirectedID)
		}
	}
	clear(f.misdirects)
}

// serves reports whether a route configuration has a virtual host for a host.
func (f *Front) serves(c *config, host string) bool {
	if f.routes.Has(c.Config, host) {
		return true
	}
	for pattern := range model.Wildcards(host) {
		if f.routes.Has(c.Config, pattern) {
			return true
		}
	}
	return false
}
