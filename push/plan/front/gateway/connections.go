package gateway

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// addTCP demands the connections of a server whose connections Envoy forwards as TCP. VirtualServices are searched in
// order of precedence, and the first tcp rule that applies decides the destinations (istio:
// pilot/pkg/networking/core/gateway.go, buildGatewayNetworkFiltersFromTCPRoutes). Without such a rule there is no
// demand, and the result is false. Further VirtualServices with such a rule are reported.
func (c *chaining) addTCP(server gateways.Server) (ruled bool) {
	var first *model.VirtualService
	for _, vs := range c.boundConnecting(server) {
		i := slices.IndexFunc(vs.Spec.GetTcp(), func(r *networkingv1.TCPRoute) bool { return c.applies(vs, server, matchesOf(r.GetMatch())) })
		switch {
		case i < 0:
		case first != nil:
			c.report(vs.Key, "spec.tcp", "connections to server "+server.Name(), model.OtherOf(first))
		default:
			first = vs
			var names []string
			if server.TLS() {
				names = gateways.Names(server.Hosts)
			}
			some := len(names) > 0
			names = c.withoutPartial(names, server.Gateway.Key, fmt.Sprintf("spec.servers[%d].hosts", server.Index))
			if some && len(names) == 0 {
				continue
			}
			c.demand(&demand{server: server, vs: vs, rules: "spec.tcp", names: names, add: func(names []string) {
				of := chainOrigin{servers: []gateways.Server{server}, names: names, rule: placeOf(vs, "spec.tcp", i)}
				c.connect(of, vs, vs.Spec.Tcp[i].GetRoute())
			}})
		}
	}
	return first != nil
}

// addPassthrough makes the demands of a server with mode PASSTHROUGH: one for each match of a tls rule, and the demand
// of addTCP.
func (c *chaining) addPassthrough(server gateways.Server) {
	ruled := false // by a tls rule
	for _, vs := range c.boundConnecting(server) {
		for i, r := range vs.Spec.GetTls() {
			for j, m := range r.GetMatch() {
				if !c.applies(vs, server, []host.SourceMatch{m}) {
					continue
				}
				names, some := c.allowed(vs, server, m.GetSniHosts(), fmt.Sprintf("spec.tls[%d].match[%d].sniHosts", i, j))
				if !some {
					continue
				}
				ruled = true
				c.demand(&demand{server: server, vs: vs, rules: "spec.tls", names: names, add: func(names []string) {
					c.connect(chainOrigin{servers: []gateways.Server{server}, names: names, rule: placeOf(vs, "spec.tls", i)}, vs, r.GetRoute())
				}})
			}
		}
	}
	if tcp := c.addTCP(server); !tcp && !ruled {
		*c.found = append(*c.found, c.idle(server, "tls or tcp"))
	}
}

// allowed returns the stated SNI names of a VirtualService that a server allows for its namespace, and that Envoy can
// match. The parameter field is the field with the names. A nil list stands for all names. The second result is false
// if no name is left.
func (c *chaining) allowed(vs *model.VirtualService, server gateways.Server, stated []string, field string) (names []string, some bool) {
	var hosts []gateways.Host
	for _, name := range stated {
		if name != "" && server.Allows(vs.Key.Namespace, name) {
			hosts = append(hosts, gateways.Host{Name: name})
		}
	}
	if len(hosts) == 0 {
		return nil, false
	}
	names = gateways.Names(hosts)
	all := names == nil
	names = c.withoutPartial(names, vs.Key, field)
	return names, all || len(names) > 0
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
