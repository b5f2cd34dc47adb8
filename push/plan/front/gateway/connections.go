package gateway

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// owner identifies the owner of the SNI names of a chain: a server, and the VirtualService whose tls rule has the
// names. The field vs is nil if the names are the server's own hosts.
type owner struct {
	server gateways.Server
	vs     *model.VirtualService
}

// object returns the VirtualService, or else the Gateway.
func (o owner) object() model.Other {
	if o.vs != nil {
		return model.OtherOf(o.vs)
	}
	return model.OtherOf(o.server.Gateway)
}

// claim reserves SNI names for a chain. It returns the names that no earlier chain of the listener has, and reports a
// problem for each other name. Without names it reserves all connections that match no name of another chain. The
// result free is false if earlier chains have all of the names.
func (c *chaining) claim(names []string, by owner) (left []string, free bool) {
	wanted := names
	if len(names) == 0 {
		wanted = []string{""}
	}
	for _, name := range wanted {
		if older, lost := c.owners[name]; lost {
			c.lose(name, by, older)
			continue
		}
		c.owners[name] = by
		left = append(left, name)
	}
	if len(names) == 0 {
		return nil, len(left) > 0
	}
	return left, len(left) > 0
}

// lose reports that an SNI name belongs to an earlier chain.
func (c *chaining) lose(name string, by, older owner) {
	key, field, what := by.server.Gateway.Key, fmt.Sprintf("spec.servers[%d]", by.server.Index), "connections with SNI "+name
	if name == "" {
		what = "connections without SNI, or with any other SNI"
	}
	if by.vs != nil {
		key, field = by.vs.Key, "spec.tls"
	}
	c.report(key, field, what, older.object())
}

// report adds a problem of an object whose connections belong to another object (older), which takes precedence.
func (c *chaining) report(key model.Key, field, what string, older model.Other) {
	p := input.Problem{Key: key, Field: field, Code: problem.Duplicate, Analyzer: problem.ConflictingGateways, Severity: problem.Error}
	p.Message, p.Whole = model.Messages(key.Namespace,
		"%s at port %d of gateway workloads in namespace %s belong to %v, which takes precedence and stays in effect",
		what, c.Port, c.Key.Namespace, older)
	*c.found = append(*c.found, p)
}

// addTCP adds the chain of a server whose connections Envoy forwards as TCP. VirtualServices are searched in order of
// precedence, and the first tcp rule that applies decides the destinations (istio:
// pilot/pkg/networking/core/gateway.go, buildGatewayNetworkFiltersFromTCPRoutes). Without such a rule there is no
// chain, and the result is false. Further VirtualServices with such a rule are reported.
func (c *chaining) addTCP(server gateways.Server) (ruled bool) {
	var names []string
	if server.TLS() {
		names = gateways.Names(server.Hosts)
	}
	var first *model.VirtualService
	for _, vs := range c.boundConnecting(server) {
		i := slices.IndexFunc(vs.Spec.GetTcp(), func(r *networkingv1.TCPRoute) bool { return c.applies(vs, server, matchesOf(r.GetMatch())) })
		switch {
		case i < 0:
		case first != nil:
			c.report(vs.Key, "spec.tcp", "connections to server "+server.Name(), model.OtherOf(first))
		default:
			first = vs
			if left, free := c.claim(names, owner{server: server}); free {
				c.connect(chainOrigin{servers: []gateways.Server{server}, names: left, rule: placeOf(vs, "spec.tcp", i)}, vs, vs.Spec.Tcp[i].GetRoute())
			}
		}
	}
	return first != nil
}

// addPassthrough adds the chains of a server with mode PASSTHROUGH: one chain for each match of a tls rule, and the
// chain of addTCP.
func (c *chaining) addPassthrough(server gateways.Server) {
	ruled := false // by a tls rule
	for _, vs := range c.boundConnecting(server) {
		for i, r := range vs.Spec.GetTls() {
			for _, m := range r.GetMatch() {
				if !c.applies(vs, server, []host.SourceMatch{m}) {
					continue
				}
				names, some := c.allowed(vs, server, m.GetSniHosts())
				if !some {
					continue
				}
				ruled = true
				if names, free := c.claim(names, owner{server, vs}); free {
					c.connect(chainOrigin{servers: []gateways.Server{server}, names: names, rule: placeOf(vs, "spec.tls", i)}, vs, r.GetRoute())
				}
			}
		}
	}
	if tcp := c.addTCP(server); !tcp && !ruled {
		*c.found = append(*c.found, c.idle(server, "tls or tcp"))
	}
}

// allowed returns the stated SNI names of a VirtualService that a server allows for its namespace, in the form that
// Envoy matches. A nil list stands for all names. The second result is false if the server allows none of the stated
// names.
func (c *chaining) allowed(vs *model.VirtualService, server gateways.Server, stated []string) (names []string, some bool) {
	var hosts []gateways.Host
	for _, name := range stated {
		if server.Allows(vs.Key.Namespace, name) {
			hosts = append(hosts, gateways.Host{Name: name})
		}
	}
	return gateways.Names(hosts), len(hosts) > 0
}

func matchesOf(matches []*networkingv1.L4MatchAttributes) (out []host.SourceMatch) {
	for _, m := range matches {
		out = append(out, m)
	}
	return out
}

// applies reports whether a rule with these matches applies to the server and the router. The rule applies if one of
// the matches applies, or if there are no matches.
func (c *chaining) applies(vs *model.VirtualService, server gateways.Server, matches []host.SourceMatch) bool {
	by := host.Arrival{Gateway: server.Name(), Port: server.Spec().GetPort().GetNumber()}
	return len(matches) == 0 || slices.ContainsFunc(matches, func(m host.SourceMatch) bool {
		return c.hosts.Applies(vs, m, by, view.Inputs{Labels: c.Key.Edge.Value().Labels})
	})
}

// placeOf returns the place of a rule in a VirtualService.
func placeOf(vs *model.VirtualService, rules string, index int) model.Place {
	return model.Place{Key: vs.Key, Field: fmt.Sprintf("%s[%d]", rules, index)}
}

// connect adds a chain that leads to the destinations of a VirtualService's rule.
func (c *chaining) connect(d chainOrigin, vs *model.VirtualService, to []*networkingv1.RouteDestination) {
	server := d.servers[0]
	chain, as, port := c.chain(server, d.names), c.hosts.WithoutInputs(), server.Spec().GetPort().GetNumber()
	var rules host.Rules // the rules of the first destination
	for i, route := range to {
		of := route.GetDestination()
		cluster, _ := as.Hosts.ClusterFor(of.GetHost(), of.GetSubset(), of.GetPort().GetNumber(), port)
		if i == 0 && cluster.Known != nil {
			rules = cluster.Known.Rules
		}
		if c.hosts.Returns(cluster.Host, cluster.Port) {
			*c.found = append(*c.found, host.Circular(d.rule.Key, d.rule.Field, cluster.ClusterName, "connections to it are closed"))
		}
	}
	names := d.names
	if len(names) == 0 {
		names = []string{"*"}
	}
	chain.TCP = envoy.Connection(c.hosts, as, to, envoy.Several{Rules: rules, Names: names,
		Port: port, StatPrefix: vs.Key.Name + "." + vs.Key.Namespace, Protocol: server.Protocol()})
	c.add(d, chain)
}

// boundConnecting returns the VirtualServices with tcp or tls rules that are bound to a server's Gateway and share a
// host with the server, sorted by precedence.
func (c *chaining) boundConnecting(server gateways.Server) (out []*model.VirtualService) {
	for _, vs := range c.connectingAt(server.Name()) {
		if slices.ContainsFunc(vs.Spec.GetHosts(), func(host string) bool {
			return len(gateways.Intersect(server.Hosts, vs.Key.Namespace, host)) > 0
		}) {
			out = append(out, vs)
		}
	}
	return out
}

// connectingAt returns the VirtualServices with tcp or tls rules that are bound to a Gateway, sorted by precedence. It
// records their hosts and destinations in Front.connecting, because edits of these hosts may change chains.
func (c *chaining) connectingAt(gateway string) []*model.VirtualService {
	all, known := c.bound[gateway]
	if known {
		return all
	}
	all = c.hosts.BoundConnecting(gateway)
	c.bound[gateway] = all
	for _, vs := range all {
		for _, h := range vs.Spec.GetHosts() {
			c.connecting[h] = true
		}
		for h := range virtualservice.Hosts(vs) {
			c.connecting[h] = true
		}
	}
	return all
}

// connects reports whether chains may depend on a host. They may if a VirtualService with tcp or tls rules for the host
// is bound to a Gateway of the scope. They also may if such a VirtualService was used when the chains were planned
// before (Front.connecting).
func (f *Front) connects(name string) bool {
	if f.connecting[name] {
		return true
	}
	for r := range f.In.ByHost(model.KindVirtualService, name) {
		vs := r.(*model.VirtualService)
		if virtualservice.Connects(vs) && slices.ContainsFunc(f.hosts.Form().Gateways, func(g string) bool { return virtualservice.For(vs, g) }) {
			return true
		}
	}
	return false
}
