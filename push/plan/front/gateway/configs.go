package gateway

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/store/model"
)

// config is one route configuration: of the plain HTTP servers that share a listener, or of one HTTPS server.
// Immutable.
type config struct {
	routes.Config
	port    uint32 // of its virtual hosts: the one that its first server states
	servers []gateways.Server
	stated  map[string][]int // name of a host -> indices of the servers that state it, ascending
	owners  *gateways.Owners // of the hosts of its listener
	// elsewhere has the hosts of other servers of its listener, without Others where requests for them are answered 404.
	elsewhere gateways.Elsewhere
}

// newConfig makes the route configuration of some servers, of which there is at least one, at a bound port. owners are
// those of the listener.
func newConfig(name string, bound uint32, servers []gateways.Server, owners *gateways.Owners) *config {
	c := &config{Config: routes.Config{Name: name, Port: bound}, port: servers[0].Spec().GetPort().GetNumber(), servers: servers,
		stated: map[string][]int{}, owners: owners, elsewhere: owners.Elsewhere(servers)}
	var ports []uint32
	for i, s := range servers {
		if port := s.Spec().GetPort().GetNumber(); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		for _, h := range s.Hosts {
			if of := c.stated[h.Name]; len(of) == 0 || of[len(of)-1] != i {
				c.stated[h.Name] = append(of, i)
			}
		}
	}
	c.ServerPorts = numbers.List(ports...)
	return c
}

// stating lists the route configurations by the names of hosts that their servers state. A gateway may have thousands
// of servers, of which an edit of a VirtualService concerns the few that cover its hosts.
type stating map[string][]*config

func newStating(configs map[string]*config) stating {
	s := stating{}
	for _, c := range configs {
		for name := range c.stated {
			s[name] = append(s[name], c)
		}
	}
	return s
}

// configs lists the route configurations, each once, of which some server's host overlaps a host of VirtualServices.
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
	add(s[host])
	for pattern := range model.Wildcards(host) {
		add(s[pattern])
	}
	if input.IsWildcard(host) {
		for name, all := range s {
			if input.Covers(host, name) {
				add(all)
			}
		}
	}
	return out
}

// domains lists the domains that VirtualServices which name a host may have here: the more specific of this host and
// each overlapping host of a server, each once.
func (c *config) domains(host string) (out []string) {
	covered := len(c.stated[host]) > 0
	for pattern := range model.Wildcards(host) {
		covered = covered || len(c.stated[pattern]) > 0
	}
	if covered || len(c.stated["*"]) > 0 {
		out = append(out, host)
	}
	if !input.IsWildcard(host) {
		return out
	}
	for name := range c.stated {
		if name != host && input.Covers(host, name) {
			out = append(out, name)
		}
	}
	return out
}

// serversOf lists the servers with a host that is the domain or covers it, in order.
func (c *config) serversOf(domain string) (out []gateways.Server) {
	indices := map[int]bool{}
	add := func(name string) {
		for _, i := range c.stated[name] {
			indices[i] = true
		}
	}
	add(domain)
	add("*")
	for pattern := range model.Wildcards(domain) {
		add(pattern)
	}
	for _, i := range slices.Sorted(maps.Keys(indices)) {
		out = append(out, c.servers[i])
	}
	return out
}

// configNamed is the route configuration that a listener asks for by a name.
func (f *Front) configNamed(name string) routes.Config {
	if c := f.configs[name]; c != nil {
		return c.Config
	}
	return envoy.ConfigNamed(name)
}
