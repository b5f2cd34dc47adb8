package gateway

import (
	"slices"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/store/model"
)

// config is one route configuration. It belongs to all plain HTTP servers of a listener, or to one HTTPS server. It is
// immutable.
type config struct {
	routes.Config
	port    uint32 // the port of its virtual hosts: the port in the Gateway of the first server
	servers []gateways.Server
	stated  stated
	endings model.Endings    // of the hosts in stated
	owners  *gateways.Owners // the owners of the hosts of the listener
	// distinct maps a Gateway ("namespace/name") to the ascending indices of its servers without those that repeat an
	// earlier server (the field repeats).
	distinct map[string][]int
	// repeats contains the indices of servers that add nothing to virtual hosts, because an earlier server of the same
	// Gateway has the same hosts, protocol and redirection.
	repeats map[int]bool
	// elsewhere has the hosts of the listener's other servers. Its list Others is empty if requests for these hosts
	// are answered 404.
	elsewhere gateways.Elsewhere
}

// newConfig returns the route configuration of at least one server, in order of precedence. The argument bound is the
// port of the listener. The argument owners has the owners of the listener's hosts.
func newConfig(name string, bound uint32, servers []gateways.Server, owners *gateways.Owners) *config {
	c := &config{Config: routes.Config{Name: name, Port: bound}, port: servers[0].Spec().GetPort().GetNumber(), servers: servers,
		stated: statedBy(servers), owners: owners, elsewhere: owners.Elsewhere(servers)}
	var ports []uint32
	for _, s := range servers {
		if port := s.Spec().GetPort().GetNumber(); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	c.ServerPorts, c.endings = numbers.List(ports...), model.EndingsOf(c.stated)
	c.distinct, c.repeats = distinctOf(servers)
	return c
}

// stating maps the hosts of servers to the route configurations of these servers. A gateway may have thousands of
// servers, and an edit of a VirtualService affects only the few servers that cover its hosts.
type stating struct {
	by      map[string][]*config
	endings model.Endings // of the hosts in by
}

func newStating(configs map[string]*config) stating {
	by := map[string][]*config{}
	for _, c := range configs {
		for name := range c.stated {
			by[name] = append(by[name], c)
		}
	}
	return stating{by, model.EndingsOf(by)}
}

// configs returns the route configurations with a server whose host overlaps the given host, each once. Hosts overlap
// if they are equal or one covers the other.
func (s stating) configs(host string) (out []*config) {
	seen := map[*config]bool{}
	add := func(all []*config) {
		for _, c := range all {
			if !seen[c] {
				seen[c] = true
				out = append(out, c)
			}
		}
	}
	for pattern := range model.Covering(host) {
		add(s.by[pattern])
	}
	if input.IsWildcard(host) {
		for name := range s.endings.Covered(host) {
			add(s.by[name])
		}
	}
	return out
}

// domains returns the domains that a VirtualService with the given host may have in the route configuration, each once.
// If a server's host overlaps the given host, the domain is the more specific of both. Shared hosts that the given host
// covers are domains of their own (config.shares).
func (c *config) domains(host string) (out []string) {
	covered := false
	for pattern := range model.Covering(host) {
		covered = covered || len(c.stated[pattern]) > 0
	}
	if covered {
		out = append(out, host)
	}
	if !input.IsWildcard(host) {
		return out
	}
	out = slices.AppendSeq(out, c.endings.Covered(host))
	for _, name := range c.elsewhere.Shared {
		if len(c.stated[name]) == 0 && input.Covers(host, name) {
			out = append(out, name)
		}
	}
	return out
}

// shares reports whether some of the servers may serve a domain, and others that have or cover it must not. Such a
// domain has a virtual host of its own. So the rules of the other servers for a wildcard receive no requests to the
// domain.
func (c *config) shares(domain string) bool {
	_, shared := slices.BinarySearch(c.elsewhere.Shared, domain)
	return shared
}

// serving returns the servers that may serve a domain (gateways.Owners.Guard), in order.
func (c *config) serving(domain string) (out []gateways.Server) {
	owner, guards := c.owners.Guard(domain)
	for _, i := range c.stated.over(domain) {
		if !guards || owner.Admits(c.servers[i]) {
			out = append(out, c.servers[i])
		}
	}
	return out
}

// configNamed returns the Config of the route configuration that a listener requests by a name.
func (f *Front) configNamed(name string) routes.Config {
	if c := f.configs[name]; c != nil {
		return c.Config
	}
	return envoy.ConfigNamed(name)
}
