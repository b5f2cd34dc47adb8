package sidecar

import (
	"cmp"
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	policies "navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// chains is the TCP chains of a port: those of the tcp or tls rules of its VirtualServices, and one to the service's cluster, unless rules
// take all. TLS that goes to none of the names of tls rules is of no service: it passes on like what is not known, as with istiod. At a
// listener that is shared, TLS is told apart by the host.
func (b *bringing) chains(e *egress, p *model.ServicePort, protocol model.Protocol, cidrs []string, shared bool) []listener.Chain {
	h := b.host
	r := routing{bringing: b, port: p.GetNumber(), protocol: protocol}
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
	c := listener.Chain{CIDRs: strs.List(cidrs...), Targets: targets.List(listener.Target{Cluster: name}), StatPrefix: name, Protocol: protocol,
		Rule: h.Rules.Main, Policy: policies.Intern(b.hosts.Policy(h.Rules, "", p.GetNumber()))}
	if input.IsTLS(protocol) && shared && h.Name != "*" {
		c.SNI = strs.List(h.Name)
	}
	if host.Dynamic(h.Service) {
		c.Dynamic, c.DynamicPort = h.Name, p.GetNumber()
	}
	return append(r.out, c)
}

// routing makes chains of the tcp or tls rules of VirtualServices for one port, which come the oldest first: what an older one matches is not for
// a younger one.
type routing struct {
	*bringing
	port     uint32
	protocol model.Protocol
	out      []listener.Chain
	complete bool                              // nothing is left for the service's own cluster
	taken    map[matched]*model.VirtualService // nil: nothing
}

// matched is what connections have that a rule takes: where they go, and the name that they ask for; each empty for all.
type matched struct{ destination, sni string }

// tls adds the chains of the tls rules.
func (r *routing) tls(vs *model.VirtualService, cidrs []string) {
	for i, route := range vs.Spec.GetTls() {
		for j, m := range route.GetMatch() {
			if !r.applies(vs, m) {
				continue
			}
			destinations := first(m.GetDestinationSubnets(), cidrs)
			c := r.chain(route.GetRoute(), destinations)
			c.SNI = strs.List(m.GetSniHosts()...)
			r.out, r.complete = append(r.out, c), true
			for _, sni := range m.GetSniHosts() {
				r.take(vs, fmt.Sprintf("spec.tls[%d].match[%d].sniHosts", i, j), destinations, sni)
			}
		}
	}
}

// tcp adds the chains of the tcp rules, up to one that is for all destinations.
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

// connect adds the chain of a tcp rule, unless one before it is for all destinations.
func (r *routing) connect(vs *model.VirtualService, field string, to []*networkingv1.RouteDestination, subnets, cidrs []string) {
	destinations := first(subnets, cidrs)
	r.take(vs, field, destinations, "")
	if r.complete {
		return
	}
	if r.out = append(r.out, r.chain(to, destinations)); len(subnets) == 0 {
		r.complete, r.taken[matched{}] = true, vs
	}
}

// take notes that connections are for a VirtualService, and reports one of whose connections all are for older ones.
func (r *routing) take(vs *model.VirtualService, field string, destinations []string, sni string) {
	if len(destinations) == 0 {
		destinations = []string{""}
	}
	if r.taken == nil {
		r.taken = map[matched]*model.VirtualService{}
	}
	var older *model.VirtualService
	left := false
	for _, d := range destinations {
		of := matched{d, sni}
		owner := cmp.Or(r.taken[of], r.taken[matched{"", sni}])
		if owner == nil {
			r.taken[of], owner = vs, vs
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
	r.found = append(r.found, input.Warning(vs.Key, problem.Duplicate, field, fmt.Sprintf("%s at port %d of %s: the older %v has a rule for all of this, which wins",
		what, r.port, r.host.Name, older.Key)))
}

func (r *routing) applies(vs *model.VirtualService, m host.SourceMatch) bool {
	return r.hosts.Applies(vs, m, host.Arrival{Gateway: virtualservice.Mesh, Port: r.port}, r.as.Inputs)
}

func (r *routing) chain(routes []*networkingv1.RouteDestination, cidrs []string) listener.Chain {
	c := listener.Chain{CIDRs: strs.List(cidrs...), StatPrefix: xds.OutboundCluster(r.port, "", r.host.Name), Protocol: r.protocol}
	rules, subset, port := r.host.Rules, "", r.port // of several destinations none decides alone
	var list []listener.Target
	var to host.Outbound // the last
	for _, route := range routes {
		d := route.GetDestination()
		to, _ = r.as.Hosts.ClusterFor(d.GetHost(), d.GetSubset(), d.GetPort().GetNumber(), r.port)
		list = append(list, listener.Target{Cluster: to.String(), Weight: uint32(max(route.GetWeight(), 0))})
	}
	if len(list) == 1 {
		list[0].Weight = 0
		c.StatPrefix = list[0].Cluster
		if h := to.Known; h != nil && h.Service != nil {
			rules, subset, port = h.Rules, routes[0].GetDestination().GetSubset(), to.Port
			if host.Dynamic(h.Service) {
				c.Dynamic, c.DynamicPort = h.Name, to.Port
			}
		}
	}
	c.Rule, c.Policy = rules.Of(subset), policies.Intern(r.hosts.Policy(rules, subset, port))
	list = slices.DeleteFunc(list, func(t listener.Target) bool { return len(list) > 1 && t.Weight == 0 })
	c.Targets = targets.List(list...)
	return c
}

func first(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}
