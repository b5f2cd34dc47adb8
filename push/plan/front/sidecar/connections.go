package sidecar

import (
	"cmp"
	"fmt"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	policies "navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// chains returns the TCP chains of a port. The chains of the tcp or tls rules of the host's VirtualServices come
// first. A chain to the service's cluster follows, unless the rules match all connections.
//
// If any tls rule applies, there is no chain to the service's cluster, as with istiod. TLS with a server name that no
// rule matches is then handled like a connection to an unknown destination. If shared is true, several services share
// the listener. The chain to the service's cluster then matches only TLS with the host's name as SNI, unless the host
// is *.
func (b *trafficPlan) chains(e *egress, p *model.ServicePort, protocol model.Protocol, cidrs []string, shared bool) []listener.Chain {
	h := b.host
	r := routing{trafficPlan: b, port: p.GetNumber(), protocol: protocol}
	for _, vs := range b.hosts.Connecting(h.Name, virtualservice.Mesh, e.Imports) {
		b.reads = append(b.reads, virtualservice.ConnectionLabelKeys(vs, virtualservice.Mesh)...)
		if input.IsTLS(protocol) {
			r.tls(vs, cidrs)
		} else {
			r.tcp(vs, cidrs)
		}
	}
	if r.complete {
		return r.out
	}
	name := xds.OutboundCluster(p.GetNumber(), "", h.Name)
	c := listener.Chain{CIDRs: strs.List(cidrs...), Targets: targets.List(listener.Target{Cluster: name}),
		StatPrefix: name, Protocol: protocol, Rule: h.Rules.Main,
		Policy: policies.Intern(b.hosts.Policy(h.Rules, "", p.GetNumber()))}
	if input.IsTLS(protocol) && shared && h.Name != "*" {
		c.SNI = strs.List(h.Name)
	}
	if host.Dynamic(h.Service) {
		c.Dynamic, c.DynamicPort = h.Name, p.GetNumber()
	}
	return append(r.out, c)
}

// routing derives filter chains from the tcp or tls rules of VirtualServices for one port. VirtualServices must be
// added in order of precedence, because connections that match an earlier VirtualService never reach a later one.
type routing struct {
	*trafficPlan
	port     uint32
	protocol model.Protocol
	out      []listener.Chain
	// complete is true if a tcp rule matches all connections, or if a tls rule applies. If it is true, no chain to the
	// service's cluster follows.
	complete bool
	claimed  map[claim]*model.VirtualService // the first VirtualService for each claim
}

// claim describes connections that a rule matches, by destination subnet and server name (SNI). An empty field matches
// any value.
type claim struct{ destination, sni string }

// tls adds the chains of the tls rules.
func (r *routing) tls(vs *model.VirtualService, cidrs []string) {
	for i, route := range vs.Spec.GetTls() {
		for j, m := range route.GetMatch() {
			if !r.applies(vs, m) {
				continue
			}
			destinations := firstNonEmpty(m.GetDestinationSubnets(), cidrs)
			c := r.chain(route.GetRoute(), destinations)
			c.SNI = strs.List(m.GetSniHosts()...)
			r.out, r.complete = append(r.out, c), true
			for _, sni := range m.GetSniHosts() {
				r.claim(vs, fmt.Sprintf("spec.tls[%d].match[%d].sniHosts", i, j), destinations, sni)
			}
		}
	}
}

// tcp adds the chains of the tcp rules, up to the first rule that matches all destinations.
func (r *routing) tcp(vs *model.VirtualService, cidrs []string) {
	for i, route := range vs.Spec.GetTcp() {
		at := fmt.Sprintf("spec.tcp[%d]", i)
		if len(route.GetMatch()) == 0 {
			r.connect(vs, at, route.GetRoute(), nil, cidrs)
		}
		for j, m := range route.GetMatch() {
			if r.applies(vs, m) {
				r.connect(vs, fmt.Sprintf("%s.match[%d]", at, j), route.GetRoute(), m.GetDestinationSubnets(), cidrs)
			}
		}
	}
}

// connect adds the chain of a tcp rule, unless an earlier rule matches all destinations.
func (r *routing) connect(vs *model.VirtualService, field string, to []*networkingv1.RouteDestination, subnets, cidrs []string) {
	destinations := firstNonEmpty(subnets, cidrs)
	r.claim(vs, field, destinations, "")
	if r.complete {
		return
	}
	if r.out = append(r.out, r.chain(to, destinations)); len(subnets) == 0 {
		r.complete, r.claimed[claim{}] = true, vs
	}
}

// claim records the connections that a rule of a VirtualService matches. If earlier VirtualServices match all these
// connections, claim reports that the rule has no effect.
func (r *routing) claim(vs *model.VirtualService, field string, destinations []string, sni string) {
	if len(destinations) == 0 {
		destinations = []string{""}
	}
	if r.claimed == nil {
		r.claimed = map[claim]*model.VirtualService{}
	}
	var older *model.VirtualService
	left := false
	for _, d := range destinations {
		of := claim{d, sni}
		owner := cmp.Or(r.claimed[of], r.claimed[claim{"", sni}])
		if owner == nil {
			r.claimed[of], owner = vs, vs
		}
		if owner == vs {
			left = true
		} else {
			older = owner
		}
	}
	if older == nil || left {
		return
	}
	what := "connections"
	if sni != "" {
		what = "TLS for " + sni
	}
	r.found = append(r.found, input.WarningAbout(vs.Key, problem.Duplicate, field,
		"%s at port %d of %s: no effect, since %v matches all these connections", what, r.port, r.host.Name, model.OlderOf(older)))
}

// applies reports whether a match of a VirtualService applies to connections at the port.
func (r *routing) applies(vs *model.VirtualService, m host.SourceMatch) bool {
	return r.hosts.Applies(vs, m, host.Arrival{Gateway: virtualservice.Mesh, Port: r.port}, r.as.Inputs)
}

// chain returns the chain for connections to the given subnets. The chain distributes connections over the routes by
// weight. A single destination decides the policy of the chain. For several destinations the policy of the host
// applies.
func (r *routing) chain(routes []*networkingv1.RouteDestination, cidrs []string) listener.Chain {
	c := envoy.Connection(r.hosts, r.as, routes, envoy.Several{Port: r.port, StatPrefix: xds.OutboundCluster(r.port, "", r.host.Name),
		Rules: r.host.Rules, Protocol: r.protocol})
	c.CIDRs = strs.List(cidrs...)
	return c
}

// firstNonEmpty returns a, or b if a is empty.
func firstNonEmpty(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}
